# cython: language_level=3
"""Where OpenSSL writes what it encrypts: the native form of `_outgoing_plain`, where the idea stands.

A `MemoryBIO` fills the memory that it will write to with zeros, copies each record into it, and gives all of it away as
fresh memory: beside encrypting, that is the better part of what a large answer costs. Here OpenSSL writes into a buffer
that stays, by a BIO of our own, and the socket is written from there.

The standard library keeps the connection's `SSL` to itself, and everything but writing is still done by it. So its object
is looked into, and OpenSSL's functions are looked up in the very library that it uses: no headers are needed to compile
this, and it can be no other version. An object has, behind its Python header,

    0  the socket       none for one that is read from memory
    1  SSL *
    2  the context      by which the layout is recognised, before anything is followed

Where the layout is another one, or OpenSSL's functions are not to be found (some Pythons have it built in), the reference
is used.
"""
import _ssl
import ssl
import threading

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.object cimport PyObject
from libc.stddef cimport size_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy
from posix.dlfcn cimport RTLD_LAZY, RTLD_LOCAL, dlopen, dlsym
from posix.unistd cimport write

from arrowmq.remoting.tls import _outgoing_plain as plain

cdef enum:
    FIRST_BYTES = 320 * 1024   # what is encrypted at once, as records; more is rare
    KEPT_BYTES = 2 * FIRST_BYTES
    CONTROL_FLUSH = 11         # BIO_CTRL_FLUSH
    BIO_KIND = 0x0400          # BIO_TYPE_SOURCE_SINK
    MODE_PARTIAL = 1           # SSL_MODE_ENABLE_PARTIAL_WRITE
    CONTROL_MODE_OFF = 78      # SSL_CTRL_CLEAR_MODE


cdef struct Encrypted:
    char* data
    Py_ssize_t size
    Py_ssize_t room
    Py_ssize_t users           # connections, and the object that it belongs to


ctypedef int (*BioWrite)(void* bio, const char* data, int size) noexcept nogil
ctypedef long (*BioControl)(void* bio, int what, long number, void* place) noexcept nogil
ctypedef int (*BioDestroy)(void* bio) noexcept nogil

cdef struct OpenSsl:
    int (*get_new_index)() noexcept nogil
    void* (*meth_new)(int kind, const char* name) noexcept nogil
    int (*meth_set_write)(void* method, BioWrite) noexcept nogil
    int (*meth_set_ctrl)(void* method, BioControl) noexcept nogil
    int (*meth_set_destroy)(void* method, BioDestroy) noexcept nogil
    void* (*bio_new)(void* method) noexcept nogil
    void (*set_data)(void* bio, void* data) noexcept nogil
    void* (*get_data)(void* bio) noexcept nogil
    void (*set_init)(void* bio, int is_init) noexcept nogil
    void (*set0_wbio)(void* line, void* bio) noexcept nogil
    long (*ctrl)(void* line, int what, long number, void* place) noexcept nogil
    int (*write_ex)(void* line, const void* data, size_t size, size_t* written) noexcept nogil
    int (*get_error)(const void* line, int outcome) noexcept nogil
    void (*clear_errors)() noexcept nogil

cdef OpenSsl openssl
cdef void* bio_method = NULL
cdef object is_found = None     # None: not looked for yet
cdef object finding = threading.Lock()


# --- the BIO ---------------------------------------------------------------------------------------------------------


cdef int bio_write(void* bio, const char* data, int size) noexcept nogil:
    """Takes everything; -1, which OpenSSL reports as an error, without memory."""
    cdef Encrypted* encrypted = <Encrypted*>openssl.get_data(bio)
    cdef Py_ssize_t room = encrypted.room
    cdef char* grown
    if size <= 0:
        return 0
    if encrypted.size + size > room:
        while encrypted.size + size > room:
            room *= 2
        grown = <char*>realloc(encrypted.data, room)
        if grown == NULL:
            return -1
        encrypted.data, encrypted.room = grown, room
    memcpy(encrypted.data + encrypted.size, data, size)
    encrypted.size += size
    return size


cdef long bio_control(void* bio, int what, long number, void* place) noexcept nogil:
    return what == CONTROL_FLUSH    # OpenSSL asks for it after a hand-shake's messages; other things cannot be had


cdef int bio_destroy(void* bio) noexcept nogil:
    """A connection's end."""
    leave(<Encrypted*>openssl.get_data(bio))
    return 1


cdef void leave(Encrypted* encrypted) noexcept nogil:
    encrypted.users -= 1
    if encrypted.users == 0:
        free(encrypted.data)
        free(encrypted)


# --- OpenSSL, where the standard library has it -----------------------------------------------------------------------


cdef bint find_functions():
    """OpenSSL's functions by their names, in the library that `_ssl` is linked to."""
    cdef bytes module = getattr(_ssl, "__file__", "").encode()    # a module that is built in has none
    cdef void* library = dlopen(module, RTLD_LAZY | RTLD_LOCAL) if module else NULL
    cdef void** places = [
        <void*>&openssl.get_new_index, <void*>&openssl.meth_new, <void*>&openssl.meth_set_write,
        <void*>&openssl.meth_set_ctrl, <void*>&openssl.meth_set_destroy, <void*>&openssl.bio_new,
        <void*>&openssl.set_data, <void*>&openssl.get_data, <void*>&openssl.set_init, <void*>&openssl.set0_wbio,
        <void*>&openssl.ctrl, <void*>&openssl.write_ex, <void*>&openssl.get_error, <void*>&openssl.clear_errors,
    ]
    cdef const char** names = [
        b"BIO_get_new_index", b"BIO_meth_new", b"BIO_meth_set_write",
        b"BIO_meth_set_ctrl", b"BIO_meth_set_destroy", b"BIO_new",
        b"BIO_set_data", b"BIO_get_data", b"BIO_set_init", b"SSL_set0_wbio",
        b"SSL_ctrl", b"SSL_write_ex", b"SSL_get_error", b"ERR_clear_error",
    ]
    cdef int number
    if library == NULL:
        return False
    for number in range(14):
        (<void**>places[number])[0] = dlsym(library, names[number])
        if (<void**>places[number])[0] == NULL:
            return False
    return True


cdef bint make_method() noexcept:
    global bio_method
    bio_method = openssl.meth_new(openssl.get_new_index() | BIO_KIND, b"arrowmq")
    return bio_method != NULL and (
        openssl.meth_set_write(bio_method, bio_write)
        and openssl.meth_set_ctrl(bio_method, bio_control)
        and openssl.meth_set_destroy(bio_method, bio_destroy)
    )


cdef void* ssl_of(tls, context):
    """OpenSSL's own of a connection of this context; NULL where it is not known how to find it."""
    cdef object found = getattr(tls, "_sslobj", None)
    cdef void** fields
    if type(found).__basicsize__ < <Py_ssize_t>(sizeof(PyObject) + 3 * sizeof(void*)):
        return NULL
    fields = <void**>(<char*><void*>found + sizeof(PyObject))
    return fields[1] if fields[2] == <void*>context else NULL


cdef bint find():
    global is_found
    with finding:
        if is_found is None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls = context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_side=True)
            is_found = find_functions() and ssl_of(tls, context) != NULL and make_method()
    return is_found


def make_outgoing():
    return Outgoing() if find() else plain.Outgoing()


# --- what is used of it ----------------------------------------------------------------------------------------------


cdef class Outgoing:
    cdef Encrypted* encrypted

    def __cinit__(self):
        if not is_found:
            raise TypeError("make_outgoing() says which form there is")
        self.encrypted = <Encrypted*>malloc(sizeof(Encrypted))
        if self.encrypted == NULL:
            raise MemoryError()
        self.encrypted.data = <char*>malloc(FIRST_BYTES)
        self.encrypted.size, self.encrypted.room, self.encrypted.users = 0, FIRST_BYTES, 1
        if self.encrypted.data == NULL:
            raise MemoryError()

    def __dealloc__(self):
        if self.encrypted != NULL:
            leave(self.encrypted)

    def accept(self, context, incoming):
        """The server's side of a connection that is read from there and writes here, and what encrypts for it."""
        cdef Line line = Line()
        cdef void* bio
        line.tls = context.wrap_bio(incoming, ssl.MemoryBIO(), server_side=True)
        line.line = ssl_of(line.tls, context)
        if line.line == NULL:
            raise RuntimeError("the standard library's TLS objects have changed their layout")
        bio = openssl.bio_new(bio_method)
        if bio == NULL:
            raise MemoryError()
        self.encrypted.users += 1
        openssl.set_data(bio, self.encrypted)
        openssl.set_init(bio, 1)
        openssl.set0_wbio(line.line, bio)
        # All of a call's records at once: the buffer takes them.
        openssl.ctrl(line.line, CONTROL_MODE_OFF, MODE_PARTIAL, NULL)
        return line.tls, line

    @property
    def pending(self):
        return self.encrypted.size

    def take(self):
        """All that OpenSSL has written."""
        cdef bytes taken = PyBytes_FromStringAndSize(self.encrypted.data, self.encrypted.size)
        self.clear()
        return taken

    def send(self, int handle):
        """Write it to a socket; what the kernel did not take."""
        cdef Py_ssize_t written = write(handle, self.encrypted.data, self.encrypted.size)
        cdef bytes left = b""
        if written < 0:
            written = 0              # who has the rest tries again and finds out why
        if written < self.encrypted.size:
            left = PyBytes_FromStringAndSize(self.encrypted.data + written, self.encrypted.size - written)
        self.clear()
        return left

    cdef int clear(self) except -1:
        cdef char* smaller
        self.encrypted.size = 0
        if self.encrypted.room > KEPT_BYTES:
            smaller = <char*>realloc(self.encrypted.data, FIRST_BYTES)
            if smaller != NULL:
                self.encrypted.data, self.encrypted.room = smaller, FIRST_BYTES
        return 0


cdef class Line:
    """Encrypts for one connection."""
    cdef object tls
    cdef void* line

    def encrypt(self, data):
        """All of it. Raises `ssl.SSLError` if OpenSSL does not encrypt any more."""
        cdef Py_buffer view
        cdef size_t written = 0
        cdef int outcome = 1, reason
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        if view.len:
            outcome = openssl.write_ex(self.line, view.buf, view.len, &written)
        PyBuffer_Release(&view)
        if outcome != 1:
            reason = openssl.get_error(self.line, outcome)
            openssl.clear_errors()   # or the standard library would find them with its next call
            raise ssl.SSLError(reason, "OpenSSL does not encrypt any more")
