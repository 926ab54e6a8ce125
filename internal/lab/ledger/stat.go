package ledger

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// userHz is the unit of /proc/stat for user space on every supported architecture.
const userHz = 100

// tick is one unit of /proc/stat, in seconds.
const tick = 1.0 / userHz

// Stat is the CPU part of /proc/stat, in seconds since boot.
type Stat struct {
	CPUs int
	// User includes Nice. Both include the time of virtual machines, which
	// /proc/stat also shows in separate columns; those are not read.
	User    float64
	System  float64
	IRQ     float64
	SoftIRQ float64
	Steal   float64
	// Idle includes I/O wait. The column of I/O wait may decrease, because waiting
	// that ends on another CPU is moved to the idle column; the sum does not
	// decrease.
	Idle float64
}

// ParseStat reads the text of /proc/stat.
func ParseStat(r io.Reader) (Stat, error) {
	var s Stat
	found := false
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20) // the intr line is as long as the machine has interrupts
	for lines.Scan() {
		name, rest, _ := strings.Cut(lines.Text(), " ")
		switch {
		case name == "cpu":
			if err := s.parse(rest); err != nil {
				return Stat{}, fmt.Errorf("parse /proc/stat: %w", err)
			}
			found = true
		case strings.HasPrefix(name, "cpu"):
			s.CPUs++
		}
	}
	if err := lines.Err(); err != nil {
		return Stat{}, fmt.Errorf("read /proc/stat: %w", err)
	}
	if !found || s.CPUs == 0 {
		return Stat{}, fmt.Errorf("parse /proc/stat: no cpu lines")
	}
	return s, nil
}

// parse reads the columns user nice system idle iowait irq softirq steal.
func (s *Stat) parse(line string) error {
	var v [8]float64
	fields := strings.Fields(line)
	if len(fields) < len(v) {
		return fmt.Errorf("%d columns, want %d", len(fields), len(v))
	}
	for i := range v {
		n, err := strconv.ParseUint(fields[i], 10, 64)
		if err != nil {
			return err
		}
		v[i] = float64(n) * tick
	}
	s.User, s.System, s.Idle = v[0]+v[1], v[2], v[3]+v[4]
	s.IRQ, s.SoftIRQ, s.Steal = v[5], v[6], v[7]
	return nil
}

// spent is a window of the machine's time: Busy + Idle = wall × CPUs, and the
// columns sum to Busy.
type spent struct {
	user, system, irq, soft, steal float64
	idle, busy                     float64
	// sampled is the sum of the columns as sampled by the kernel's ticks.
	sampled float64
}

// between splits wall × CPUs into idle and busy, and busy by the columns.
func between(a, b Stat, wall float64) (spent, error) {
	if a.CPUs != b.CPUs {
		return spent{}, fmt.Errorf("account for CPU time: the number of CPUs changed from %d to %d", a.CPUs, b.CPUs)
	}
	all := wall * float64(a.CPUs)
	w := spent{
		user:   rise(a.User, b.User),
		system: rise(a.System, b.System),
		irq:    rise(a.IRQ, b.IRQ),
		soft:   rise(a.SoftIRQ, b.SoftIRQ),
		idle:   min(rise(a.Idle, b.Idle), all),
	}
	w.busy = all - w.idle
	w.steal = min(rise(a.Steal, b.Steal), w.busy)
	sum := w.user + w.system + w.irq + w.soft
	w.sampled = sum + w.steal
	w.scale(sum)
	return w, nil
}

// scale scales the sampled columns, whose sum is sum, to the busy time without
// steal. Time slices that no tick has sampled are short, and mostly the kernel's.
func (w *spent) scale(sum float64) {
	used := w.busy - w.steal
	if sum == 0 {
		w.system = used
		return
	}
	for _, column := range []*float64{&w.user, &w.system, &w.irq, &w.soft} {
		*column *= used / sum
	}
}

// rise is b - a for counters that should not decrease.
func rise(a, b float64) float64 { return max(b-a, 0) }
