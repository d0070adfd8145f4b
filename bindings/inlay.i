/* What SWIG makes of inlay.h. The interface is the same for every language; how a language sees pointers, bytes and arrays is in its
 * own file. Source: the SWIG 4.1 manual. */
%{
#include <inlay/inlay.h>
%}

%include <stdint.i>

#if defined(SWIGJAVA)
%include "java/typemaps.i"
#elif defined(SWIGGO)
%include "go/typemaps.i"
#elif defined(SWIGCSHARP)
%include "csharp/typemaps.i"
#endif

%include <inlay/inlay.h>
