# heddle_layer(NAME DEPENDS ...): one folder, one target, an include path of what it may see.
#
# build/<preset>/inc/<layer>/<layer> is a link to src/<layer>. A target's include path is include/ plus inc/<layer> of
# itself and of its dependencies, transitively, so that `#include "ir/graph.h"` resolves only where it is allowed.
include_guard(GLOBAL)

set(HEDDLE_INC "${PROJECT_BINARY_DIR}/inc")
set_property(GLOBAL PROPERTY HEDDLE_CORE_LAYERS "")
if(NOT EXISTS "${PROJECT_BINARY_DIR}/empty.cpp")
  file(WRITE "${PROJECT_BINARY_DIR}/empty.cpp" "")
endif()

# A link inc/<layer>/<path> -> src/<path>.
function(heddle_link_headers layer path)
  get_filename_component(parent "${HEDDLE_INC}/${layer}/${path}" DIRECTORY)
  file(MAKE_DIRECTORY "${parent}")
  file(CREATE_LINK "${PROJECT_SOURCE_DIR}/src/${path}" "${HEDDLE_INC}/${layer}/${path}" SYMBOLIC)
endfunction()

# What a layer depends on, transitively, itself included.
function(heddle_layer_closure out)
  set(closure "")
  foreach(layer IN LISTS ARGN)
    get_property(deps GLOBAL PROPERTY HEDDLE_CLOSURE_${layer})
    if(NOT deps)
      message(FATAL_ERROR "layer '${layer}' is not declared yet: declare lower layers first")
    endif()
    list(APPEND closure ${deps})
  endforeach()
  list(REMOVE_DUPLICATES closure)
  set(${out} "${closure}" PARENT_SCOPE)
endfunction()

# Include directories of a target that sees exactly LAYERS.
function(heddle_see target)
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}/include" "${HEDDLE_INC}/generated")
  foreach(layer IN LISTS ARGN)
    target_include_directories(${target} PRIVATE "${HEDDLE_INC}/${layer}")
  endforeach()
endfunction()

function(heddle_layer name)
  cmake_parse_arguments(arg "" "" "DEPENDS" ${ARGN})
  set(closure "${name}")
  if(arg_DEPENDS)
    heddle_layer_closure(below ${arg_DEPENDS})
    list(APPEND closure ${below})
  endif()
  set_property(GLOBAL PROPERTY HEDDLE_CLOSURE_${name} "${closure}")
  heddle_link_headers(${name} ${name})

  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*.cpp")
  if(NOT sources)
    return()
  endif()
  add_library(heddle_${name} OBJECT ${sources})
  heddle_see(heddle_${name} ${closure})
  target_link_libraries(heddle_${name} PRIVATE heddle_abi)
  heddle_precompile(heddle_${name})
  set_property(GLOBAL APPEND PROPERTY HEDDLE_CORE_LAYERS ${name})
endfunction()

# All layers that have sources become one libheddle.so.
function(heddle_core_library)
  get_property(layers GLOBAL PROPERTY HEDDLE_CORE_LAYERS)
  add_library(heddle SHARED "${PROJECT_BINARY_DIR}/empty.cpp")
  foreach(layer IN LISTS layers)
    target_link_libraries(heddle PRIVATE heddle_${layer})
  endforeach()
  target_link_libraries(heddle PUBLIC Threads::Threads ${CMAKE_DL_LIBS})
  target_include_directories(heddle INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>)
  target_compile_features(heddle INTERFACE cxx_std_20)
  set_target_properties(heddle PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  add_library(heddle::heddle ALIAS heddle)
endfunction()

# heddle_backend(NAME): src/backend/NAME becomes libheddle_NAME.so, which may use all of core. It exports what is in
# namespace heddle and the C entry points, so that types are shared with core; the symbols of vendor libraries stay inside.
function(heddle_backend name)
  heddle_layer_closure(core api)
  set_property(GLOBAL PROPERTY HEDDLE_CLOSURE_backend_${name} "backend_${name};${core}")
  heddle_link_headers(backend_${name} backend/${name})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*.cpp")
  if(NOT sources)
    return()
  endif()
  add_library(heddle_${name} SHARED ${sources})
  heddle_see(heddle_${name} backend_${name} ${core})
  target_link_libraries(heddle_${name} PRIVATE heddle heddle_abi)
  set(script "${PROJECT_SOURCE_DIR}/cmake/backend.map")
  target_link_options(heddle_${name} PRIVATE -Wl,--version-script=${script} -Wl,--exclude-libs,ALL -Wl,-z,defs)
  if(HEDDLE_SANITIZE)
    set_target_properties(heddle_${name} PROPERTIES LINK_OPTIONS "-Wl,--version-script=${script};-Wl,--exclude-libs,ALL")
  endif()
  set_target_properties(heddle_${name} PROPERTIES LINK_DEPENDS ${script})
  heddle_precompile(heddle_${name} OWN)
endfunction()

# An executable that sees every layer (tests, fuzzers, benchmarks), placed in build/<preset>/FOLDER.
function(heddle_inner_executable target folder)
  heddle_layer_closure(core api)
  add_executable(${target} ${ARGN})
  heddle_see(${target} ${core})
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}/tests")
  target_link_libraries(${target} PRIVATE heddle heddle_abi GTest::gtest)
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/${folder}")
  heddle_precompile(${target} TESTS)
  foreach(backend IN ITEMS cpu cuda)
    if(TARGET heddle_${backend})
      add_dependencies(${target} heddle_${backend})
    endif()
  endforeach()
endfunction()

# Precompiled standard headers: one set for core, one for tests (with gtest), own ones for what has other flags.
# heddle_precompile(TARGET [OWN | TESTS])
function(heddle_precompile target)
  if(NOT HEDDLE_PCH)
    return()
  endif()
  set(owner heddle_pch)
  set(headers "${PROJECT_SOURCE_DIR}/cmake/pch.h")
  if("OWN" IN_LIST ARGN)
    set(owner ${target})
  elseif("TESTS" IN_LIST ARGN)
    set(owner heddle_pch_tests)
    list(APPEND headers <gtest/gtest.h>)
  endif()
  if(NOT TARGET ${owner})
    add_library(${owner} OBJECT "${PROJECT_BINARY_DIR}/empty.cpp")
    if("TESTS" IN_LIST ARGN)
      target_link_libraries(${owner} PRIVATE GTest::gtest)
    endif()
  endif()
  get_target_property(done ${owner} HEDDLE_PCH_DONE)
  if(NOT done)
    target_precompile_headers(${owner} PRIVATE ${headers})
    set_target_properties(${owner} PROPERTIES HEDDLE_PCH_DONE ON)
    heddle_pch_sum(${owner})
  endif()
  if(NOT owner STREQUAL target)
    target_precompile_headers(${target} REUSE_FROM ${owner})
  endif()
endfunction()

# The compiler cache identifies a precompiled header by this file: what decides what is in it, equal in every checkout,
# unlike the .gch itself.
function(heddle_pch_sum owner)
  get_target_property(folder ${owner} BINARY_DIR)
  string(TOUPPER "${CMAKE_BUILD_TYPE}" type)
  get_directory_property(options COMPILE_OPTIONS)
  get_directory_property(definitions COMPILE_DEFINITIONS)
  string(REPLACE "${PROJECT_SOURCE_DIR}" "" options "${options}")
  file(SHA256 "${PROJECT_SOURCE_DIR}/cmake/pch.h" digest)
  set(all "${owner} ${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION} ${CMAKE_CXX_STANDARD} ${CMAKE_CXX_FLAGS}")
  string(APPEND all " ${CMAKE_CXX_FLAGS_${type}} ${options} ${definitions} ${digest}")
  string(SHA256 digest "${all}")
  file(WRITE "${folder}/CMakeFiles/${owner}.dir/cmake_pch.hxx.gch.sum" "${digest}\n")
endfunction()

# generated/build_info.h: HEDDLE_VERSION_STRING and HEDDLE_ABI_HASH, a hash of all headers and of the CPU emitter, which
# decides what code the disk cache holds for a kernel. A backend that was built with others than the core that loads it is
# refused. Include it in one source file a library only.
function(heddle_build_info)
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/include/*.h" "${PROJECT_SOURCE_DIR}/src/*.h"
       "${PROJECT_SOURCE_DIR}/src/backend/cpu/*.cpp")
  set(out "${HEDDLE_INC}/generated/generated/build_info.h")
  # Relative names: what letters the path of the checkout has does not matter.
  file(GLOB_RECURSE names RELATIVE "${PROJECT_SOURCE_DIR}" "${PROJECT_SOURCE_DIR}/include/*.h" "${PROJECT_SOURCE_DIR}/src/*.h"
       "${PROJECT_SOURCE_DIR}/src/backend/cpu/*.cpp")
  string(REPLACE ";" "\n" listing "${names}")
  file(WRITE "${PROJECT_BINARY_DIR}/headers.txt.new" "${listing}\n")
  file(COPY_FILE "${PROJECT_BINARY_DIR}/headers.txt.new" "${PROJECT_BINARY_DIR}/headers.txt" ONLY_IF_DIFFERENT)
  add_custom_command(
    OUTPUT "${out}"
    COMMAND ${CMAKE_COMMAND} -DROOT=${PROJECT_SOURCE_DIR} -DLIST=${PROJECT_BINARY_DIR}/headers.txt -DOUT=${out}
            -DVERSION=${PROJECT_VERSION}
            "-DFLAGS=${CMAKE_CXX_COMPILER_ID}-${CMAKE_CXX_COMPILER_VERSION}-${CMAKE_BUILD_TYPE}-${HEDDLE_SANITIZE}"
            -P "${PROJECT_SOURCE_DIR}/cmake/build_info.cmake"
    DEPENDS ${headers} "${PROJECT_BINARY_DIR}/headers.txt" "${PROJECT_SOURCE_DIR}/cmake/build_info.cmake"
    COMMENT "Hashing headers" VERBATIM)
  add_custom_target(heddle_build_info DEPENDS "${out}")
  add_library(heddle_abi INTERFACE)
  add_dependencies(heddle_abi heddle_build_info)
endfunction()
heddle_build_info()
