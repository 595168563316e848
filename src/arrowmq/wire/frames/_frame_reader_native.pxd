# The command in a whole frame without its length word; raises `FrameError` if there is none.
cdef object read_frame(const unsigned char* frame, Py_ssize_t length)
