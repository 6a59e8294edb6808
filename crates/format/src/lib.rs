//! On-disk structures to and from bytes: the only source of the layout. No I/O, no unsafe.
