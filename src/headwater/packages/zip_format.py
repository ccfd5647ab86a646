"""Records of the ZIP format (APPNOTE 6.3.9) as precompiled structs, with the numbers that writing and reading share."""

from struct import Struct

LOCAL = Struct("<4sHHHHHIIIHH")
"""Signature, version needed, flags, method, time, date, CRC, compressed size, size, length of name, of extra."""

CENTRAL = Struct("<4sHHHHHHIIIHHHHHII")
"""Signature, version made by, version needed, flags, method, time, date, CRC, compressed size, size, length of name,
of extra, of comment, disk, internal attributes, external attributes, offset of the local header."""

END = Struct("<4sHHHHIIH")
"""Signature, disk, disk of the directory, members on this disk, members, size and offset of the directory, length of
the comment."""

END64 = Struct("<4sQHHIIQQQQ")
"""Signature, size of the rest, version made by, version needed, disk, disk of the directory, members on this disk,
members, size and offset of the directory."""

LOCATOR64 = Struct("<4sIQI")
"""Signature, disk of the ZIP64 end record, its offset, number of disks."""

LOCAL_SIGNATURE = b"PK\x03\x04"
CENTRAL_SIGNATURE = b"PK\x01\x02"
END_SIGNATURE = b"PK\x05\x06"
END64_SIGNATURE = b"PK\x06\x06"
LOCATOR64_SIGNATURE = b"PK\x06\x07"
DESCRIPTOR_SIGNATURE = b"PK\x07\x08"

STORED = 0
DEFLATED = 8

ENCRYPTED = 1 << 0
DESCRIPTOR = 1 << 3
UTF8 = 1 << 11

DESCRIPTORS = (
    (Struct("<4sIII"), DESCRIPTOR_SIGNATURE, False),
    (Struct("<4sIQQ"), DESCRIPTOR_SIGNATURE, True),
    (Struct("<III"), None, False),
    (Struct("<IQQ"), None, True),
)
"""Data descriptors (CRC, compressed size, size) as they are met: the form, its signature if any, whether of 64 bits."""

ZIP64_FIELD = 0x0001
"""Header id of the extra field with sizes and offset of 64 bits."""

REGULAR_FILE, FOLDER, FILE_KIND = 0o100000, 0o040000, 0o170000
"""Kinds of files, and the bits that hold them, in the upper half of the external attributes."""

MOST_16 = 0xFFFF
MOST_32 = 0xFFFFFFFF
"""Values that say: look in the ZIP64 field. They are no sizes, offsets or counts themselves."""
