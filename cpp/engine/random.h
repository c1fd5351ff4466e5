// The random numbers of numpy.random.Generator(PCG64(seed)), number for number.
//
// Seeding (SeedSequence) and the generator (PCG64) are written out here; distributions are NumPy's
// own compiled functions, so that not even their last digit differs.
#pragma once

#include <numpy/random/bitgen.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

// Of libnpyrandom, which ships inside the numpy package. Declared here because NumPy's own header
// drags in Python's.
extern "C" {
double random_standard_uniform(bitgen_t*);
double random_standard_normal(bitgen_t*);
double random_normal(bitgen_t*, double mean, double deviation);
double random_uniform(bitgen_t*, double lower, double range);
uint64_t random_bounded_uint64(bitgen_t*, uint64_t offset, uint64_t range, uint64_t mask,
                               bool masked);
}

namespace envfleet {

// One of low, ..., high - 1, as Generator.integers() draws it.
inline int64_t bounded_integer(bitgen_t* generator, int64_t low, int64_t high) {
    const auto range = static_cast<uint64_t>(high) - 1 - static_cast<uint64_t>(low);
    return static_cast<int64_t>(
        random_bounded_uint64(generator, static_cast<uint64_t>(low), range, 0, false));
}

// numpy.random.SeedSequence: spreads entropy of any length evenly over the words of a seed.
class SeedSequence {
  public:
    explicit SeedSequence(std::span<const uint32_t> entropy) {
        uint32_t constant = 0x43b0d7e5;
        for (size_t i = 0; i < pool_.size(); ++i) {
            pool_[i] = hash(i < entropy.size() ? entropy[i] : 0, constant);
        }
        for (size_t from = 0; from < pool_.size(); ++from) {
            for (size_t to = 0; to < pool_.size(); ++to) {
                if (from != to) pool_[to] = mix(pool_[to], hash(pool_[from], constant));
            }
        }
        for (size_t from = pool_.size(); from < entropy.size(); ++from) {
            for (uint32_t& word : pool_) word = mix(word, hash(entropy[from], constant));
        }
    }

    template <size_t count>
    std::array<uint64_t, count> generate() const {
        std::array<uint64_t, count> words{};
        uint32_t constant = 0x8b51f9dd;
        for (size_t i = 0; i < 2 * count; ++i) {
            uint32_t half = pool_[i % pool_.size()] ^ constant;
            constant *= 0x58f38ded;
            half *= constant;
            half ^= half >> 16;
            words[i / 2] |= uint64_t{half} << (32 * (i % 2));
        }
        return words;
    }

  private:
    static uint32_t hash(uint32_t value, uint32_t& constant) {
        value ^= constant;
        constant *= 0x931e8875;
        value *= constant;
        return value ^ (value >> 16);
    }
    static uint32_t mix(uint32_t x, uint32_t y) {
        const uint32_t mixed = 0xca01f9ddu * x - 0x4973f715u * y;
        return mixed ^ (mixed >> 16);
    }

    std::array<uint32_t, 4> pool_;
};

// numpy.random.PCG64, with the methods of numpy.random.Generator that environments use.
class Rng {
  public:
    __extension__ using Wide = unsigned __int128;

    void seed(std::span<const uint32_t> entropy) {
        const auto words = SeedSequence(entropy).generate<4>();
        state_ = 0;
        increment_ = (join(words[2], words[3]) << 1) | 1;
        advance();
        state_ += join(words[0], words[1]);
        advance();
        has_half_ = 0;
        half_ = 0;
    }

    // Evenly in [0, 1).
    double random() {
        bitgen_t generator = interface();
        return random_standard_uniform(&generator);
    }
    double uniform(double low, double high) {
        bitgen_t generator = interface();
        return random_uniform(&generator, low, high - low);
    }
    double standard_normal() {
        bitgen_t generator = interface();
        return random_standard_normal(&generator);
    }
    // One of low, ..., high - 1.
    int64_t integers(int64_t low, int64_t high) {
        bitgen_t generator = interface();
        return bounded_integer(&generator, low, high);
    }
    // The index that Generator.choice() picks from `count` things.
    int64_t choice(int64_t count) { return integers(0, count); }

    // What NumPy's functions draw from; valid as long as this object stays where it is.
    bitgen_t interface() {
        static constexpr auto self = [](void* rng) { return static_cast<Rng*>(rng); };
        return {this, [](void* rng) { return self(rng)->next64(); },
                [](void* rng) { return self(rng)->next32(); },
                [](void* rng) { return static_cast<double>(self(rng)->next64() >> 11) * 0x1p-53; },
                [](void* rng) { return self(rng)->next64(); }};
    }

    // One that goes on from what another showed. Increments are odd.
    static Rng at(Wide state, Wide increment, bool has_half, uint32_t half) {
        Rng rng;
        rng.state_ = state;
        rng.increment_ = increment;
        rng.has_half_ = has_half;
        rng.half_ = half;
        return rng;
    }

    // What PCG64.state shows: state, increment, and half a number kept for later.
    Wide state() const { return state_; }
    Wide increment() const { return increment_; }
    bool has_half() const { return has_half_ != 0; }
    uint32_t half() const { return half_; }

  private:
    static Wide join(uint64_t high, uint64_t low) { return (Wide{high} << 64) | low; }

    void advance() { state_ = state_ * join(0x2360ed051fc65da4, 0x4385df649fccf645) + increment_; }
    uint64_t next64() {
        advance();
        const auto folded = static_cast<uint64_t>(state_ >> 64) ^ static_cast<uint64_t>(state_);
        const auto turn = static_cast<unsigned>(state_ >> 122);
        return (folded >> turn) | (folded << ((-turn) & 63));
    }
    uint32_t next32() {
        if (has_half_) {
            has_half_ = 0;
            return half_;
        }
        const uint64_t both = next64();
        has_half_ = 1;
        half_ = static_cast<uint32_t>(both >> 32);
        return static_cast<uint32_t>(both);
    }

    Wide state_ = 0;
    Wide increment_ = 1;
    uint32_t has_half_ = 0;
    uint32_t half_ = 0;
};

}  // namespace envfleet
