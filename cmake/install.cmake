# install.cmake -- libraries, header, program, and the two ways to find them: pkg-config and find_package(ambi).
include(CMakePackageConfigHelpers)

install(TARGETS ambi_shared ambi_static EXPORT ambi-targets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET ambi)
  install(TARGETS ambi RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES include/ambi/ambi.h include/ambi/pack.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ambi)

# pkg-config: the prefix is found from where ambi.pc lies, so an installed tree can be moved.
set(pc_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH AMBI_PC_TO_PREFIX /${pc_dir} /)
set(AMBI_PC_DL "")
foreach(lib ${CMAKE_DL_LIBS}) # dlopen's, where libc has none itself
  string(APPEND AMBI_PC_DL " -l${lib}")
endforeach()
configure_file(cmake/ambi.pc.in ambi.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/ambi.pc DESTINATION ${pc_dir})

# CMake: find_package(ambi) gives ambi::shared and ambi::static.
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ambi)
install(EXPORT ambi-targets NAMESPACE ambi:: DESTINATION ${package_dir})
configure_package_config_file(cmake/ambi-config.cmake.in ambi-config.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(ambi-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/ambi-config.cmake ${PROJECT_BINARY_DIR}/ambi-config-version.cmake
        DESTINATION ${package_dir})
