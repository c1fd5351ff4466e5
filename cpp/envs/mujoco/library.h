// MuJoCo's functions, found in the library that the `mujoco` Python package has loaded.
//
// Only addresses are needed, no header of MuJoCo's: whatever version is installed is the one that
// computes, as it is for Gymnasium's environments.
#pragma once

#include <csetjmp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

namespace envfleet {

struct MujocoLibrary {
    using OnData = void (*)(const void* model, void* data);
    using ErrorHandler = void (*)(const char* message);

    OnData step = nullptr;
    OnData reset_data = nullptr;
    OnData forward = nullptr;
    OnData rne_post_constraint = nullptr;
    int (*state_size)(const void* model, int parts) = nullptr;
    void (*get_state)(const void* model, const void* data, double* state, int parts) = nullptr;
    void (*set_state)(const void* model, void* data, const double* state, int parts) = nullptr;
    ErrorHandler* error_handler = nullptr;
    int whole_state = 0;  // the parts of the state on which the next step depends
};

// Set once, before any environment runs.
inline MujocoLibrary mujoco;

// MuJoCo's errors do not return: by default they end the program. Inside a call of ours they jump
// back to where it began, as they do in MuJoCo's own Python functions, and become exceptions there.
class MujocoErrors {
  public:
    static void install() {
        if (*mujoco.error_handler == &handle) return;
        others_ = *mujoco.error_handler;
        *mujoco.error_handler = &handle;
    }

    // Calls a function of MuJoCo's some times over.
    static void call(MujocoLibrary::OnData function, const void* model, void* data, int64_t times) {
        std::jmp_buf here;
        if (setjmp(here) != 0) {
            way_back_ = nullptr;
            throw std::runtime_error(message_);
        }
        way_back_ = &here;
        for (int64_t i = 0; i < times; ++i) function(model, data);
        way_back_ = nullptr;
    }

  private:
    static void handle(const char* message) {
        if (way_back_ != nullptr) {
            std::strncpy(message_, message, sizeof message_ - 1);
            std::longjmp(*way_back_, 1);
        }
        if (others_ != nullptr) return others_(message);
        std::fprintf(stderr, "MuJoCo: %s\n", message);
        std::exit(EXIT_FAILURE);
    }

    static inline MujocoLibrary::ErrorHandler others_ = nullptr;
    static inline thread_local std::jmp_buf* way_back_ = nullptr;
    static inline thread_local char message_[1024] = "";
};

}  // namespace envfleet
