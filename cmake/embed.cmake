# embed.cmake -- kernel texts as C strings: `const char NAME_cu[]`. NAME is the file's own name; for OP/cuda.cu it is
# OP, for any other text of an op OP_NAME. A page NAME.html becomes `const char NAME_html[]`.
#
# As a function it makes the rule; run as a script (-P) it writes the file. Quoted #include lines are for the reader's
# editor: the library puts the pieces together itself.
if(CMAKE_SCRIPT_MODE_FILE)
  file(READ ${TEXT} bytes HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
  file(WRITE ${OUT} "extern const char ${NAME}[];\nconst char ${NAME}[] = {${bytes}0};\n")
  return()
endif()

function(embed_texts out)
  set(sources)
  foreach(text ${ARGN})
    get_filename_component(name ${text} NAME_WE)
    get_filename_component(folder ${text} DIRECTORY)
    get_filename_component(folder ${folder} NAME)
    if(name STREQUAL cuda)
      set(name ${folder})
    elseif(text MATCHES "/ops/")
      set(name ${folder}_${name})
    endif()
    set(kind cu)
    if(text MATCHES "\\.html$")
      set(kind html)
    endif()
    set(file ${PROJECT_BINARY_DIR}/text/${name}_${kind}.c)
    add_custom_command(
      OUTPUT ${file}
      COMMAND ${CMAKE_COMMAND} -DTEXT=${text} -DNAME=${name}_${kind} -DOUT=${file}
              -P ${PROJECT_SOURCE_DIR}/cmake/embed.cmake
      DEPENDS ${text} ${PROJECT_SOURCE_DIR}/cmake/embed.cmake
      VERBATIM)
    list(APPEND sources ${file})
  endforeach()
  set(${out} ${sources} PARENT_SCOPE)
endfunction()
