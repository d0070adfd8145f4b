# libinlay.so with everything inside that is not glibc. Debian's archives of abseil and protobuf are not position
# independent and Highway has none, so these are built from Debian's source packages of the installed versions, whose headers
# the rest of the build sees.
include(ExternalProject)
include(${CMAKE_CURRENT_LIST_DIR}/archives.cmake)

set(INLAY_DEPENDENCY_SOURCES "" CACHE PATH "Where dependencies/fetch.sh has put the sources; empty: it is called when they are needed")
find_library(INLAY_PCRE2_ARCHIVE libpcre2-8.a HINTS ${PCRE2_LIBRARY_DIRS})
find_library(INLAY_UTF8PROC_ARCHIVE libutf8proc.a HINTS ${UTF8PROC_LIBRARY_DIRS})
mark_as_advanced(INLAY_PCRE2_ARCHIVE INLAY_UTF8PROC_ARCHIVE)

set(INLAY_CAN_SELF_CONTAIN OFF)
if(INLAY_PCRE2_ARCHIVE AND INLAY_UTF8PROC_ARCHIVE AND NOT INLAY_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  set(INLAY_CAN_SELF_CONTAIN ON)
elseif(INLAY_SELF_CONTAINED)
  message(FATAL_ERROR "INLAY_SELF_CONTAINED needs g++, libpcre2-8.a and libutf8proc.a, and no sanitizer")
endif()

if(INLAY_CAN_SELF_CONTAIN)
  set(INLAY_DEPENDENCIES_DIR ${CMAKE_BINARY_DIR}/dependencies)
  set(INLAY_DEPENDENCIES_ARCHIVE ${INLAY_DEPENDENCIES_DIR}/build/libinlay_dependencies.a CACHE INTERNAL "")
  set(dependencies_sources ${INLAY_DEPENDENCY_SOURCES})
  set(dependencies_fetch "")
  if(NOT dependencies_sources)
    set(dependencies_sources ${INLAY_DEPENDENCIES_DIR}/sources)
    set(dependencies_fetch ${CMAKE_CURRENT_LIST_DIR}/dependencies/fetch.sh ${dependencies_sources})
  endif()
  ExternalProject_Add(inlay_dependencies
    EXCLUDE_FROM_ALL TRUE
    PREFIX ${INLAY_DEPENDENCIES_DIR}
    SOURCE_DIR ${CMAKE_CURRENT_LIST_DIR}/dependencies
    BINARY_DIR ${INLAY_DEPENDENCIES_DIR}/build
    DOWNLOAD_COMMAND ${dependencies_fetch}
    CMAKE_ARGS -DSOURCES=${dependencies_sources} -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_COMPILER=${CMAKE_C_COMPILER} -DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER}
      -DCMAKE_C_COMPILER_LAUNCHER=${CMAKE_C_COMPILER_LAUNCHER} -DCMAKE_CXX_COMPILER_LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER}
    INSTALL_COMMAND ""
    BUILD_BYPRODUCTS ${INLAY_DEPENDENCIES_ARCHIVE})
endif()

# inlay_inside(SELF_CONTAINED FILES DEPENDS): the layers' archives, and if SELF_CONTAINED those of all they need; and what builds them.
function(inlay_inside self_contained out_files out_depends)
  inlay_archives(layers inlay_api_reports inlay_core)
  list(TRANSFORM layers REPLACE "(.+)" "$<TARGET_FILE:\\1>" OUTPUT_VARIABLE files)
  if(self_contained)
    list(APPEND layers inlay_dependencies)
    list(APPEND files ${INLAY_DEPENDENCIES_ARCHIVE} ${INLAY_PCRE2_ARCHIVE} ${INLAY_UTF8PROC_ARCHIVE})
  endif()
  if(INLAY_HAS_CUDA)
    list(APPEND files ${CUDA_cudart_static_LIBRARY})
  endif()
  set(${out_files} ${files} PARENT_SCOPE)
  set(${out_depends} ${layers} PARENT_SCOPE)
endfunction()

# Archives by their files: as targets they would bring the shared libraries that they are used with elsewhere.
function(inlay_link_self_contained target)
  inlay_inside(ON files depends)
  target_link_libraries(${target} PRIVATE -Wl,--start-group ${files} -Wl,--end-group -static-libstdc++ -static-libgcc
    -Wl,-u,__cxa_pure_virtual)  # a weak reference, which takes nothing from an archive
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${INLAY_DEPENDENCIES_ARCHIVE})
  add_dependencies(${target} ${depends})
endfunction()
