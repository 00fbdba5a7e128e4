// The text of a plan: steps, bytes, operations, claims and why.
#include "base/check.h"
#include "plan/layout.h"
#include "plan/plan.h"

#include <sstream>

namespace heddle::plan {

namespace {

const char* place_letter(Place place) {
  switch (place) {
    case Place::arena:
      return "b";
    case Place::input:
      return "in";
    case Place::output:
      return "out";
    case Place::constant:
      return "const";
    case Place::variable:
      return "var";
    case Place::view:
      return "row";
  }
  return "?";
}

// Long formulas say less than that there is one.
std::string brief(const Expr& e) {
  std::string text = e.to_string();
  return text.size() <= 48 ? text : "(by size)";
}

class Printer {
 public:
  explicit Printer(const Plan& plan) : plan_(plan) {}

  std::string text() {
    out_ << "plan for " << plan_.devices[0] << ": " << plan_.kernel_steps << " kernels, "
         << plan_.calls.size() << " library calls, " << plan_.slots.size() << " buffers, "
         << plan_.constants.size() << " constants\n";
    for (size_t i = 0; i < plan_.inputs.size(); ++i) {
      out_ << "  in" << i << ": " << to_string(plan_.inputs[i].type) << " " << plan_.inputs[i].name
           << "\n";
    }
    for (size_t i = 0; i < plan_.outputs.size(); ++i)
      out_ << "  out" << i << ": " << to_string(plan_.outputs[i].type) << "\n";
    steps(plan_.steps, 1);
    arena();
    out_ << "device graph: " << (plan_.no_recording.empty() ? "yes" : "no, " + plan_.no_recording)
         << "\n";
    for (const std::string& note : plan_.notes) out_ << "note: " << note << "\n";
    return out_.str();
  }

 private:
  std::string slot(SlotId id) const {
    const Slot& s = plan_.slots[id];
    std::string text = place_letter(s.place);
    text += std::to_string(s.place == Place::arena || s.place == Place::view ? id : s.index);
    if (s.shares != kNone) text += base::cat("(in b", s.shares, ")");
    return text;
  }

  void arena() {
    bool symbolic = !plan_.symbols.empty();
    if (symbolic) {
      out_ << "arena: by size (symbols";
      for (const SymbolRef& s : plan_.symbols) out_ << " " << s->name;
      out_ << ")\n";
      return;
    }
    std::shared_ptr<const Layout> layout = make_layout(plan_, {});
    out_ << "arena: " << layout->arena_bytes << " bytes (" << layout->unshared_bytes
         << " without reuse)\n";
  }

  void steps(const std::vector<Step>& list, int depth) {
    for (const Step& step : list) {
      out_ << std::string(static_cast<size_t>(2 * depth), ' ');
      line(step);
      for (const std::string& location : step.locations) out_ << " @" << location;
      out_ << "\n";
      if (step.kind == StepKind::kernel) {
        for (const std::string& note : plan_.kernels[step.kernel].notes) {
          out_ << std::string(static_cast<size_t>(2 * depth + 4), ' ') << note << "\n";
        }
      }
      block("prologue", step.prologue, depth);
      block("test", step.test, depth);
      block(step.kind == StepKind::cond ? "then" : "body", step.first, depth);
      block(step.kind == StepKind::cond ? "else" : "after", step.second, depth);
      for (SlotPair pair : step.advance) {
        out_ << std::string(static_cast<size_t>(2 * depth + 2), ' ') << slot(pair.a) << " <- "
             << slot(pair.b) << "\n";
      }
    }
  }

  void block(const char* name, const std::vector<Step>& list, int depth) {
    if (list.empty()) return;
    out_ << std::string(static_cast<size_t>(2 * depth), ' ') << name << ":\n";
    steps(list, depth + 1);
  }

  void line(const Step& step) {
    out_ << "#" << step.number << " ";
    switch (step.kind) {
      case StepKind::kernel: {
        const ir::Kernel& kernel = *plan_.kernels[step.kernel].kernel;
        ir::KernelCost cost = ir::cost(kernel);
        out_ << "kernel " << kernel.name << arguments(step) << " reads " << brief(cost.bytes_read)
             << " B, writes " << brief(cost.bytes_written) << " B, " << brief(cost.points)
             << " points x " << cost.ops_per_point << " ops";
        return;
      }
      case StepKind::call:
        out_ << "call " << plan_.calls[step.call].claim << arguments(step) << " "
             << plan_.calls[step.call].call->describe();
        return;
      case StepKind::copy:
        out_ << "copy" << arguments(step) << " " << brief(plan_.slots[step.buffers[0]].bytes)
             << " B";
        return;
      case StepKind::fill:
        out_ << "zero" << arguments(step);
        return;
      case StepKind::cond:
        out_ << "if " << slot(step.predicate) << how(step);
        return;
      case StepKind::while_loop:
        out_ << "while " << slot(step.predicate) << how(step);
        return;
      case StepKind::for_loop:
        out_ << "for " << (step.count ? step.count->to_string() : slot(step.count_slot))
             << how(step);
        return;
    }
  }

  const char* how(const Step& step) const { return step.on_device ? " (device graph)" : " (host)"; }

  std::string arguments(const Step& step) const {
    std::string text = "(";
    for (size_t i = 0; i < step.buffers.size(); ++i)
      text += (i > 0 ? " " : "") + slot(step.buffers[i]);
    return text + ")";
  }

  const Plan& plan_;
  std::ostringstream out_;
};

}  // namespace

std::string describe(const Plan& plan) { return Printer(plan).text(); }

}  // namespace heddle::plan
