/* empty.c -- a library without functions, see CMakeLists.txt. */
typedef int nothing;
