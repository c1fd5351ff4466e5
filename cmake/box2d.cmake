# Box2D, compiled from the sources that Gymnasium's Python package is made of: another version gives other numbers.
# They come from third_party, where the source distribution has them, or are downloaded into the build folder. Where that
# fails, everything else is built without them, unless ENVFLEET_NEEDS_BOX2D says that this is no use.
option(ENVFLEET_NEEDS_BOX2D "Fail where the sources of Box2D cannot be had" OFF)
set(BOX2D_SOURCES "${CMAKE_BINARY_DIR}/box2d-py-2.3.8")
execute_process(
  COMMAND "${Python_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/fetch_box2d.py" "${BOX2D_SOURCES}"
  RESULT_VARIABLE box2d_failed
  ERROR_VARIABLE box2d_error)
if(box2d_failed AND ENVFLEET_NEEDS_BOX2D)
  message(FATAL_ERROR "The sources of Box2D cannot be had.\n${box2d_error}")
elseif(box2d_failed)
  message(WARNING
    "envfleet is built without native LunarLander and BipedalWalker: the sources of Box2D could not be downloaded "
    "with pip. Everything else works. To get them, install again where pip finds box2d-py==2.3.8.\n${box2d_error}")
  return()
endif()

file(GLOB_RECURSE box2d_files "${BOX2D_SOURCES}/Box2D/*.cpp")
list(FILTER box2d_files EXCLUDE REGEX "/(b2Timer|b2Distance|b2TimeOfImpact)\\.cpp$")
# These count their calls in global variables, which threads would fight over: one set of them a thread.
foreach(name b2Distance b2TimeOfImpact)
  file(READ "${BOX2D_SOURCES}/Box2D/Collision/${name}.cpp" text)
  string(REGEX REPLACE "\n((int32|float32) b2_(gjk|toi))" "\nthread_local \\1" text "${text}")
  file(CONFIGURE OUTPUT "box2d_altered/${name}.cpp"
    CONTENT "// Altered from Box2D's for envfleet: variables that count calls are thread_local.\n${text}" @ONLY)
  list(APPEND box2d_files "${CMAKE_BINARY_DIR}/box2d_altered/${name}.cpp")
endforeach()
add_library(box2d OBJECT ${box2d_files} cpp/bindings/box2d.cpp)
set_source_files_properties(cpp/bindings/box2d.cpp PROPERTIES
  SKIP_UNITY_BUILD_INCLUSION ON COMPILE_OPTIONS "-Wall;-Wextra;-Werror")
# First those of ours: they keep Python and the clock out of Box2D.
target_include_directories(box2d BEFORE PRIVATE cpp/box2d_stubs)
target_include_directories(box2d PRIVATE cpp)
target_include_directories(box2d SYSTEM PRIVATE "${BOX2D_SOURCES}" ${Python_NumPy_INCLUDE_DIRS})
# No sincos where Python computes sine and cosine one by one: the last digit may differ. Hidden, so that the Box2D of
# Gymnasium's package and this one never meet.
target_compile_options(box2d PRIVATE -O3 -ffp-contract=off -fno-builtin-sin -fno-builtin-cos -ftls-model=initial-exec)
set_target_properties(box2d PROPERTIES
  POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
  UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
target_sources(_native PRIVATE $<TARGET_OBJECTS:box2d>)
target_compile_definitions(_native PRIVATE ENVFLEET_BOX2D)
install(FILES "${BOX2D_SOURCES}/Box2D/Box2D-License.txt" DESTINATION envfleet/licenses)
