// envfleet._core: the engine as Python sees it. Checks arguments, releases the GIL, nothing more.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <stdexcept>

#include "bindings/rows.h"
#include "engine/mailroom.h"
#include "engine/watchdog.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using envfleet::Mailroom;
using envfleet::Nanoseconds;
using envfleet::Patience;

using Memory = nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

Nanoseconds nanoseconds(double seconds) {
    constexpr double longest = 1e9;  // thirty years: as good as for ever, and far from overflow
    if (std::isnan(seconds)) throw nb::value_error("a time must be a number");
    return static_cast<Nanoseconds>(std::clamp(seconds, 0.0, longest) * 1e9);
}

Patience patience(double pause, double yield) { return {nanoseconds(pause), nanoseconds(yield)}; }

// Keeps the memory alive and refuses worker numbers that do not exist.
class PyMailroom {
  public:
    PyMailroom(Memory memory, uint32_t workers, bool create)
        : memory_(std::move(memory)),
          room_(create ? Mailroom::create(checked(memory_, workers), workers)
                       : Mailroom::attach(checked(memory_, workers), workers)) {}

    void post(uint32_t first, uint32_t last, uint32_t command) {
        if (first >= last || last > room_.workers()) throw nb::index_error("no such workers");
        room_.post(first, last, command);
    }

    uint64_t turns() const { return room_.turns(); }

    bool wait_done(double timeout, double pause, double yield) {
        nb::gil_scoped_release no_gil;
        return room_.wait_done(patience(pause, yield), envfleet::now() + nanoseconds(timeout));
    }

    bool is_finished(uint32_t w) const { return room_.is_finished(checked(w)); }
    uint32_t status(uint32_t w) const { return room_.status(checked(w)); }

    std::optional<uint32_t> take(uint32_t w, double timeout, double pause, double yield) {
        checked(w);
        nb::gil_scoped_release no_gil;
        uint32_t command;
        const Nanoseconds deadline = envfleet::now() + nanoseconds(timeout);
        if (!room_.take(w, patience(pause, yield), deadline, command)) return std::nullopt;
        return command;
    }

    void finish(uint32_t w, uint32_t status) { room_.finish(checked(w), status); }

  private:
    static void* checked(const Memory& memory, uint32_t workers) {
        if (memory.size() < Mailroom::bytes(workers)) throw nb::value_error("memory too small");
        if (reinterpret_cast<uintptr_t>(memory.data()) % alignof(envfleet::Mailbox) != 0) {
            throw nb::value_error("memory must be aligned to a cache line");
        }
        return memory.data();
    }
    uint32_t checked(uint32_t w) const {
        if (w >= room_.workers()) throw nb::index_error("no such worker");
        return w;
    }

    Memory memory_;
    Mailroom room_;
};

}  // namespace

NB_MODULE(_core, m) {
    m.doc() = "The compiled part of envfleet.";
    nb::set_leak_warnings(false);  // a fleet that lives until the interpreter ends is no leak

    nb::class_<PyMailroom>(m, "Mailroom", "Turns passed between a caller and its workers.")
        .def(nb::init<Memory, uint32_t, bool>(), "memory"_a.noconvert(), "workers"_a, "create"_a)
        .def_static("bytes", &Mailroom::bytes, "workers"_a, "How much memory it needs.")
        .def("post", &PyMailroom::post, "first"_a, "last"_a, "command"_a,
             "Give a command to the workers first..last-1.")
        .def("turns", &PyMailroom::turns, "How many turns this object has posted.")
        .def("wait_done", &PyMailroom::wait_done, "timeout"_a, "pause"_a, "yield_"_a,
             "Wait until all of them finished; False when time ran out or a signal came.")
        .def("is_finished", &PyMailroom::is_finished, "worker"_a)
        .def("status", &PyMailroom::status, "worker"_a, "What the worker finished with.")
        .def("take", &PyMailroom::take, "worker"_a, "timeout"_a, "pause"_a, "yield_"_a,
             "Wait for a command; None when time ran out or a signal came.")
        .def("finish", &PyMailroom::finish, "worker"_a, "status"_a);

    envfleet::import_numpy();
    nb::class_<envfleet::RowWriter>(m, "RowWriter",
                                    "Copies observations into the rows of an array.")
        .def(nb::init<nb::object, nb::object>(), "column"_a, "otherwise"_a)
        .def("__call__", &envfleet::RowWriter::write, "row"_a, "value"_a.none());

    nb::class_<envfleet::InfoPacker>(m, "InfoPacker",
                                     "Packs info dicts of plain numbers into rows.")
        .def(nb::init<envfleet::InfoPacker::Bytes, envfleet::InfoPacker::Bytes>(),
             "rows"_a.noconvert(), "kinds"_a.noconvert())
        .def("begin", &envfleet::InfoPacker::begin, "Forget the last turn's infos.")
        .def("put", &envfleet::InfoPacker::put, "row"_a, "info"_a.none(),
             "Pack one like the last; False if it is not.")
        .def("learn", &envfleet::InfoPacker::learn, "kind"_a, "keys"_a, "types"_a, "formats"_a,
             "Pack dicts with these keys and types from now on.");

    nb::class_<envfleet::RowPublisher>(m, "RowPublisher",
                                       "Publishes what a step returned in a row.")
        .def(nb::init<nb::object, envfleet::RowPublisher::Rewards, nb::object>(), "observations"_a,
             "rewards"_a.noconvert(), "infos"_a)
        .def("put", &envfleet::RowPublisher::put, "row"_a, "observation"_a.none(),
             "reward"_a.none(), "info"_a.none(), "False if anything about it is not plain.");

    m.def("exit_with_process", &envfleet::exit_with_process, "pid"_a,
          "From now on this process ends at once when the process `pid` ends.");
}
