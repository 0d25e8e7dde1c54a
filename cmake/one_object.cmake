# one_object.cmake -- the members of a static library as one object file, with every hidden name made local.
#
# In a static library, hidden functions would still meet those of its user (`fail`, `expect`): after this, only what the
# header declares is left. Without objcopy the objects are used as they are.
function(one_object out library)
  if(NOT CMAKE_OBJCOPY OR NOT UNIX OR APPLE)
    get_target_property(sources ${library} SOURCES)
    set(${out} ${sources} PARENT_SCOPE)
    return()
  endif()
  set(object ${PROJECT_BINARY_DIR}/${library}.o)
  add_custom_command(
    OUTPUT ${object}
    COMMAND ${CMAKE_C_COMPILER} -r -nostdlib -o ${object}
            -Wl,--whole-archive $<TARGET_FILE:${library}> -Wl,--no-whole-archive
    COMMAND ${CMAKE_OBJCOPY} --localize-hidden ${object}
    DEPENDS ${library}
    VERBATIM)
  set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
  set(${out} ${object} PARENT_SCOPE)
endfunction()
