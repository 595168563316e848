module natsload

go 1.22
