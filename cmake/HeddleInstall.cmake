# cmake --install: headers, libraries, the tool, and a package config for find_package(heddle CONFIG).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(CMAKE_INSTALL_LIBDIR lib)
set(package_dir lib/cmake/heddle)
install(DIRECTORY include/heddle DESTINATION include)
install(TARGETS heddle EXPORT heddleTargets LIBRARY DESTINATION lib)
foreach(target IN ITEMS heddle_cpu heddle_cuda)
  if(TARGET ${target})
    install(TARGETS ${target} LIBRARY DESTINATION lib)
  endif()
endforeach()
if(TARGET heddle_cli)
  install(TARGETS heddle_cli RUNTIME DESTINATION bin)
endif()
install(EXPORT heddleTargets NAMESPACE heddle:: DESTINATION ${package_dir})
configure_package_config_file(cmake/heddleConfig.cmake.in "${PROJECT_BINARY_DIR}/heddleConfig.cmake"
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file("${PROJECT_BINARY_DIR}/heddleConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/heddleConfig.cmake" "${PROJECT_BINARY_DIR}/heddleConfigVersion.cmake"
        DESTINATION ${package_dir})
install(FILES LICENSE NOTICE DESTINATION share/doc/heddle)
