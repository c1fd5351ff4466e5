// Where environments write: arrays with one row per environment, and each environment's row of
// them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace envfleet {

// An array of which environment i owns the bytes i * row_bytes and following.
struct Leaf {
    std::byte* data;
    size_t row_bytes;
};

// One environment's row of several arrays: the parts of its observation, or the columns of its
// info.
class Row {
  public:
    Row(const std::vector<Leaf>& leaves, size_t row) : leaves_(leaves.data()), row_(row) {}

    template <class T>
    T* leaf(size_t number) const {
        return reinterpret_cast<T*>(leaves_[number].data + row_ * leaves_[number].row_bytes);
    }

  private:
    const Leaf* leaves_;
    size_t row_;
};

// What one environment's row of several arrays held, to be put back.
class RowCopy {
  public:
    RowCopy(const std::vector<Leaf>& leaves, size_t row) : leaves_(leaves), row_(row) {
        for (const auto& [data, size] : leaves) {
            bytes_.insert(bytes_.end(), data + row * size, data + (row + 1) * size);
        }
    }

    void put_back() const {
        const std::byte* next = bytes_.data();
        for (const auto& [data, size] : leaves_) {
            std::copy_n(next, size, data + row_ * size);
            next += size;
        }
    }

  private:
    const std::vector<Leaf>& leaves_;
    size_t row_;
    std::vector<std::byte> bytes_;
};

// What a step gives besides the observation. Time limits are the pool's business.
struct Outcome {
    double reward = 0.0;
    bool terminated = false;
    bool truncated = false;
};

// A key of the info dict. Dtypes are NumPy's names.
struct InfoColumn {
    std::string name;
    std::string dtype;
    std::vector<size_t> shape = {};
    bool at_step = true;
    bool at_reset = true;
    std::string dtype_at_reset = "";  // where it differs, as with FrozenLake's integer 1
    bool marks_integers = false;  // no key: whether Python has the number before it as an integer
};

enum class Autoreset : uint8_t { next_step, same_step, disabled };

// What a row last did.
enum class Turn : uint8_t { none, stepped, reset, ended_and_reset };

struct Buffers {
    std::vector<Leaf> observations;
    std::vector<Leaf> final_observations;
    std::vector<Leaf> infos;
    std::vector<Leaf> final_infos;
    double* rewards;
    uint8_t* terminated;
    uint8_t* truncated;
    uint8_t* finished;  // the episode has ended and, unless autoreset is same_step, awaits a reset
    Turn* turns;
};

}  // namespace envfleet
