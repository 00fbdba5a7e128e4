# Third-party packages. What only one folder needs is looked for by that folder.
include_guard(GLOBAL)
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

# Stops with what to do about a dependency that is missing; SWITCH is the option that does without it, or empty.
function(heddle_missing dependency switch)
  set(text "Heddle needs ${dependency}, which was not found: run ./dev setup in ${PROJECT_SOURCE_DIR} (it installs what is missing)")
  if(switch)
    string(APPEND text ", or configure with -D${switch}=OFF")
  endif()
  message(FATAL_ERROR "${text}")
endfunction()

# heddle_find(SWITCH PACKAGE [ARGUMENTS of find_package]). A macro: packages set variables.
macro(heddle_find switch package)
  find_package(${package} ${ARGN} QUIET)
  if(NOT ${package}_FOUND)
    heddle_missing("${package}" "${switch}")
  endif()
endmacro()

# Python packages carry CMake configs and headers: .env/lib/python3.x/site-packages and .env itself.
file(GLOB HEDDLE_SITE_PACKAGES "${HEDDLE_ENV_DIR}/lib/python3*/site-packages")
list(APPEND CMAKE_PREFIX_PATH "${HEDDLE_ENV_DIR}" ${HEDDLE_SITE_PACKAGES})

find_path(HEDDLE_XXHASH_INCLUDE xxhash.h)
if(NOT HEDDLE_XXHASH_INCLUDE)
  heddle_missing("xxhash.h" "")
endif()

# The CUDA headers: a toolkit, else NVIDIA's wheels.
set(cuda_hints "$ENV{CUDA_HOME}" "$ENV{CUDA_PATH}" /usr/local/cuda)
foreach(site IN LISTS HEDDLE_SITE_PACKAGES)
  list(APPEND cuda_hints "${site}/nvidia/cu13")
endforeach()
find_path(HEDDLE_CUDA_INCLUDE NAMES cuda.h PATHS ${cuda_hints} PATH_SUFFIXES include NO_DEFAULT_PATH)
