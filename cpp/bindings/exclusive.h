// One user at a time: which thread is inside a call of a fleet, and whether the fleet is to close.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <utility>

namespace envfleet {

namespace nb = nanobind;

// All of it happens with the GIL held, so plain members do. `with` over this object is safe from
// Ctrl-C: Python runs no signal handler between entering and the block, nor between the block and
// leaving.
class Exclusive {
  public:
    using Thread = unsigned long;
    static constexpr Thread nobody = 0;

    // `refuse(owner, is_closed)` raises what whoever may not enter is told.
    explicit Exclusive(nb::object refuse) : refuse_(std::move(refuse)) {}

    bool try_enter() noexcept {
        if (owner_ != nobody || is_closing_) return false;
        owner_ = PyThread_get_thread_ident();
        return true;
    }

    void enter() {
        if (try_enter()) return;
        settle();
        refuse();
    }

    // True if that was all; False if the fleet was closed meanwhile, and what was done is void.
    bool leave() noexcept {
        owner_ = nobody;
        return !is_closing_;
    }

    // From now on nobody enters, and whoever is inside is to leave; False if that was said before.
    bool begin_closing() noexcept { return !std::exchange(is_closing_, true); }

    // Leaves the closing to whoever is inside; False if nobody is.
    bool hand_over(nb::object close) {
        if (owner_ == nobody) return false;
        successor_ = std::move(close);
        return true;
    }

    // Closes, if that was left to whoever comes out.
    void settle() {
        if (owner_ != nobody || !successor_.is_valid()) return;
        const nb::object close = std::move(successor_);
        successor_.reset();
        close();
    }

    bool is_told_to_leave() const noexcept { return is_closing_ && owner_ != nobody; }

    // For whoever is inside and waits for something: raises if the fleet is to close.
    void check() const {
        if (is_told_to_leave()) refuse();
    }

    // In a forked copy of the process: other threads do not exist here.
    void forget_others() noexcept {
        if (owner_ != PyThread_get_thread_ident()) owner_ = nobody;
    }

    Thread owner() const noexcept { return owner_; }

    // What `with` calls, without the cost of nanobind's arguments.
    static PyObject* enter_block(PyObject* self, PyObject*) noexcept;
    static PyObject* leave_block(PyObject* self, PyObject* const* raised, Py_ssize_t) noexcept;

  private:
    void refuse() const { refuse_(owner_, is_closing_); }

    nb::object refuse_, successor_;
    Thread owner_ = nobody;
    bool is_closing_ = false;
};

// Somebody inside for as long as this lives, if that is possible.
class Visit {
  public:
    explicit Visit(Exclusive& place) noexcept : place_(place.try_enter() ? &place : nullptr) {}
    ~Visit() {
        if (place_ != nullptr) place_->leave();
    }
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;

    explicit operator bool() const noexcept { return place_ != nullptr; }

  private:
    Exclusive* place_;
};

// A call that must be the only one of its object: two threads in one environment would break it.
// Whoever calls past a fleet, which lets nobody else in, is refused here, and so is a caller that
// does not even have the GIL.
class InUse {
  public:
    // A call, from now on until this ends.
    class Scope {
      public:
        explicit Scope(InUse& place) : place_(place) {
            if (!place_.try_enter()) refuse();
        }
        ~Scope() { place_.leave(); }
        Scope(const Scope&) = delete;
        Scope& operator=(const Scope&) = delete;

      private:
        InUse& place_;
    };

    bool try_enter() noexcept { return !is_used_.exchange(true, std::memory_order_acquire); }
    void leave() noexcept { is_used_.store(false, std::memory_order_release); }

    void check() const {
        if (is_used_.load(std::memory_order_acquire)) refuse();
    }

  private:
    [[noreturn]] static void refuse() {
        const nb::object type = nb::module_::import_("envfleet.errors").attr("FleetInUseError");
        const nb::object error = type(
            "This fleet is in use by another thread, which has not come back from it yet. Nothing "
            "was done: give each thread a fleet of its own, or a lock to take turns.",
            "step");
        PyErr_SetObject(type.ptr(), error.ptr());
        throw nb::python_error();
    }

    std::atomic<bool> is_used_{false};
};

template <class Work>
PyObject* unless_raised(const Work& work) noexcept {
    try {
        work();
        Py_RETURN_NONE;
    } catch (nb::python_error& error) {
        error.restore();
        return nullptr;
    }
}

inline PyObject* Exclusive::enter_block(PyObject* self, PyObject*) noexcept {
    auto* place = nb::inst_ptr<Exclusive>(self);
    if (place->try_enter()) Py_RETURN_NONE;
    return unless_raised([&] { place->enter(); });
}

// Whatever came of a call during which the fleet was closed, it is told that it is closed; but a
// Ctrl-C stays one, and a program that ends goes on doing so.
inline PyObject* Exclusive::leave_block(PyObject* self, PyObject* const* raised,
                                        Py_ssize_t) noexcept {
    auto* place = nb::inst_ptr<Exclusive>(self);
    if (place->leave()) Py_RETURN_NONE;
    return unless_raised([&] {
        place->settle();
        const bool ends = raised[0] != Py_None && PyType_Check(raised[0]) &&
                          !PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(raised[0]),
                                            reinterpret_cast<PyTypeObject*>(PyExc_Exception));
        if (!ends) place->refuse();
    });
}

}  // namespace envfleet
