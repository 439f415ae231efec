"""What every room stands on: the C++ library, sizes, memory, arguments and messages, dtypes and shape letters."""
