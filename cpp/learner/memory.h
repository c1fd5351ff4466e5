// Memory that kernels work in.
#pragma once

#include <cstddef>
#include <new>
#include <utility>

#include "learner/kernels.h"

namespace envfleet::learner {

// Floats on a cache line's boundary, with the slack that kernels may read beyond their end. Zero
// at first.
class Floats {
  public:
    Floats() = default;
    explicit Floats(ptrdiff_t count)
        : count_(count), data_(static_cast<float*>(::operator new(bytes(), std::align_val_t{64}))) {
        for (ptrdiff_t i = 0; i < count_ + slack; ++i) data_[i] = 0;
    }
    Floats(Floats&& other) noexcept { swap(other); }
    Floats& operator=(Floats&& other) noexcept {
        swap(other);
        return *this;
    }
    ~Floats() { ::operator delete(data_, std::align_val_t{64}); }

    float* data() { return data_; }
    const float* data() const { return data_; }
    ptrdiff_t size() const { return count_; }
    float& operator[](ptrdiff_t i) { return data_[i]; }
    float operator[](ptrdiff_t i) const { return data_[i]; }

    // As many as this at least; what was there is lost if there were fewer.
    void reserve(ptrdiff_t count) {
        if (count > count_) *this = Floats(count);
    }

  private:
    size_t bytes() const { return static_cast<size_t>(count_ + slack) * sizeof(float); }
    void swap(Floats& other) noexcept {
        std::swap(count_, other.count_);
        std::swap(data_, other.data_);
    }

    ptrdiff_t count_ = 0;
    float* data_ = nullptr;
};

}  // namespace envfleet::learner
