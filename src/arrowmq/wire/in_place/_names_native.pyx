# cython: language_level=3
"""A table of exact names, each with a number. C for other native modules; a `dict` says the same, so it has no reference."""
from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport calloc, free


cdef class NameTable:
    """Made of a mapping of names to numbers above 0. It does not change: who wants other names makes another."""

    def __cinit__(self, numbers):
        cdef uint32_t room = 16, place
        cdef bytes text
        while room < 4 * len(numbers):      # sparse: most names that are looked up are not there
            room *= 2
        self.places = <Named*>calloc(room, sizeof(Named))
        if self.places == NULL:
            raise MemoryError()
        self.mask = room - 1
        self.longest = 0
        self.texts = []
        for letter in range(128):
            self.letters[letter] = 0
        for name, number in numbers.items():
            text = name.encode()
            if not text or number <= 0:
                raise ValueError(f"{name!r}: {number}; a name has letters, and a number above 0")
            self.texts.append(text)
            self.longest = max(self.longest, len(text))
            if len(text) == 1:
                self.letters[ord(name)] = number
                continue
            place = place_of(<const uint8_t*><const char*>text, len(text)) & self.mask
            while self.places[place].text != NULL:
                place = (place + 1) & self.mask
            self.places[place].text = <const uint8_t*><const char*>text
            self.places[place].size = len(text)
            self.places[place].number = number

    def __dealloc__(self):
        free(self.places)

    def __getitem__(self, bytes name):
        return number_of(self, <const uint8_t*><const char*>name, len(name)) if name else 0
