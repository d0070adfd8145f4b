# cmake -DSWIG=.. -DINTERFACE=.. -DINCLUDE=a;b -DOUT=folder -DWRAPPER=file -P swig.cmake
# One set of classes, whatever a changed header made before; and nothing of SWIG's is public (for its constants it has no option).
file(REMOVE_RECURSE ${OUT})
file(MAKE_DIRECTORY ${OUT})
list(TRANSFORM INCLUDE PREPEND -I)
execute_process(COMMAND ${SWIG} -java -Wall ${INCLUDE} -module InlayC -package dev.inlay -outdir ${OUT} -o ${WRAPPER} ${INTERFACE}
  COMMAND_ERROR_IS_FATAL ANY)
file(READ ${OUT}/InlayCConstants.java constants)
string(REPLACE "public interface" "interface" constants "${constants}")
file(WRITE ${OUT}/InlayCConstants.java "${constants}")
