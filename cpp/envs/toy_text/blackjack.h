// Blackjack: get closer to 21 than the dealer without going beyond. Sutton and Barto, example 5.1.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "engine/checks.h"
#include "engine/fields.h"
#include "engine/random.h"
#include "engine/rows.h"
#include "engine/snapshot.h"

namespace envfleet {

// Cards by value, an ace being 1. The longest hand is one of aces, and one too many.
class Hand {
  public:
    void draw(Rng& rng) {
        constexpr std::array<int64_t, 13> deck = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 10, 10, 10};
        cards_[count_++] = deck[static_cast<size_t>(rng.choice(13))];
    }
    void clear() { count_ = 0; }

    std::vector<int64_t> cards() const { return {cards_.begin(), cards_.begin() + count_}; }
    int64_t first() const { return cards_[0]; }

    // An ace counts as 11 where that does no harm.
    bool has_usable_ace() const { return has_ace() && plain_sum() + 10 <= 21; }
    int64_t sum() const { return plain_sum() + (has_usable_ace() ? 10 : 0); }
    bool is_bust() const { return sum() > 21; }
    int64_t score() const { return is_bust() ? 0 : sum(); }
    bool is_natural() const { return count_ == 2 && has_ace() && plain_sum() == 11; }

    void write_to(std::vector<std::byte>& bytes) const {
        write(bytes, static_cast<uint8_t>(count_));
        for (size_t i = 0; i < count_; ++i) write(bytes, static_cast<uint8_t>(cards_[i]));
    }
    void read_from(SnapshotReader& reader) {
        uint8_t count = 0, card = 0;
        reader.read(count);
        if (count > most_cards) refuse_snapshot("no hand has so many cards");
        cards_ = {};
        count_ = count;
        for (size_t i = 0; i < count_; ++i) {
            reader.read(card);
            if (card < 1 || card > 10) refuse_snapshot("there is no such card");
            cards_[i] = card;
        }
    }

  private:
    // Twenty-one aces, and one too many. Whoever has as many is bust, and draws once at most.
    static constexpr size_t most_cards = 22;

    int64_t plain_sum() const {
        int64_t sum = 0;
        for (size_t i = 0; i < count_; ++i) sum += cards_[i];
        return sum;
    }
    bool has_ace() const {
        return std::find(cards_.begin(), cards_.begin() + count_, 1) != cards_.begin() + count_;
    }

    std::array<int64_t, 24> cards_;
    size_t count_;
};

inline void write(std::vector<std::byte>& bytes, const Hand& hand) { hand.write_to(bytes); }
inline Value as_value(const Hand& hand) { return hand.cards(); }
inline void assign(std::string_view name, const Value&, Hand&) {
    refuse_value(name, "left alone: hands are dealt");
}

// A letter for those who draw the table; none before the first reset.
struct Letter {
    char letter;

    void read_from(SnapshotReader& reader) { reader.read(letter); }
    void check(const char* name, std::string_view known) const {
        if (letter == '\0' || known.find(letter) != known.npos) return;
        throw std::invalid_argument(std::string(name) + " must be one of " + std::string(known) +
                                    ".");
    }
};
inline void write(std::vector<std::byte>& bytes, const Letter& letter) {
    write(bytes, letter.letter);
}
inline Value as_value(const Letter& letter) { return std::string(1, letter.letter); }
inline void assign(std::string_view name, const Value& value, Letter& target) {
    std::string text;
    assign(name, value, text);
    if (text.size() != 1) refuse_value(name, "a letter");
    target.letter = text[0];
}

struct Blackjack {
    struct Params {
        bool natural = false;  // an ace and a ten pay one and a half times
        bool sab = false;      // Sutton and Barto's rules: they win unless the dealer has them too
    };
    struct State {
        Hand player, dealer;
        Letter dealer_top_card_suit, dealer_top_card_value_str;
    };
    using Action = int64_t;  // stick, hit
    static constexpr int64_t num_actions = 2;

    static void reset(State& s, Rng& rng, const Params&) {
        for (Hand* hand : {&s.dealer, &s.player}) {
            hand->clear();
            hand->draw(rng);
            hand->draw(rng);
        }
        s.dealer_top_card_suit.letter = "CDHS"[rng.choice(4)];
        const int64_t top = s.dealer.first();
        s.dealer_top_card_value_str.letter = top == 1    ? 'A'
                                             : top == 10 ? "JQK"[rng.choice(3)]
                                                         : static_cast<char>('0' + top);
    }

    static Outcome step(State& s, Rng& rng, const Params& p, int64_t action) {
        if (action == 1) {
            s.player.draw(rng);
            const bool bust = s.player.is_bust();
            return {bust ? -1.0 : 0.0, bust};
        }
        while (s.dealer.sum() < 17) s.dealer.draw(rng);
        const int64_t lead = s.player.score() - s.dealer.score();
        const double result = lead > 0 ? 1.0 : lead < 0 ? -1.0 : 0.0;
        if (p.sab && s.player.is_natural() && !s.dealer.is_natural()) return {1.0, true};
        const bool pays_more = !p.sab && p.natural && s.player.is_natural() && result == 1.0;
        return {pays_more ? 1.5 : result, true};
    }

    static std::vector<size_t> observation_bytes(const Params&) {
        return {sizeof(int64_t), sizeof(int64_t), sizeof(int64_t)};
    }
    static void observe(const State& s, const Params&, const Row& out) {
        *out.leaf<int64_t>(0) = s.player.sum();
        *out.leaf<int64_t>(1) = s.dealer.first();
        *out.leaf<int64_t>(2) = s.player.has_usable_ace();
    }

    static auto parameters() {
        return std::tuple(field("natural", &Params::natural), field("sab", &Params::sab));
    }
    static auto variables() {
        return std::tuple(field("player", &State::player), field("dealer", &State::dealer),
                          field("dealer_top_card_suit", &State::dealer_top_card_suit),
                          field("dealer_top_card_value_str", &State::dealer_top_card_value_str));
    }
    static auto saved() { return variables(); }
    static void check(const State& s, const Params&) {
        s.dealer_top_card_suit.check("dealer_top_card_suit", "CDHS");
        s.dealer_top_card_value_str.check("dealer_top_card_value_str", "A23456789JQK");
    }
};

}  // namespace envfleet
