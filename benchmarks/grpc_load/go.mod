module grpcload

go 1.23

require github.com/apache/rocketmq-clients/golang/v5 v5.1.4
