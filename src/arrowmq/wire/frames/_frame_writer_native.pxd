# The frame with `body`, or without it if that is None; None if the reference must find out what is wrong.
cdef bytes write_frame(object command, Py_ssize_t body_length, bytes body)
