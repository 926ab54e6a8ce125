package measure

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"fairlead/internal/cli/command"
	"fairlead/internal/lab/expr"
	"fairlead/internal/lab/peer"
	"fairlead/internal/lab/result"
	"fairlead/internal/lab/runner"
	"fairlead/internal/lab/suite"
	"fairlead/internal/lab/tool"
	"fairlead/internal/model"
)

// labChoice holds the flags of `lab run` that choose what to measure. A zero field
// means the suite's value.
type labChoice struct {
	rounds         int
	duration       time.Duration
	clients, loads []string
	mtus           []int
	baseline       string
	tools          []string
	conditions     []string
	docker         string
	shared         bool
	family         int
	netem          string
}

// minWindow is the shortest window in which a measurement makes sense.
const minWindow = 10 * time.Millisecond

// suite returns the suite that the arguments and flags describe. The arguments
// are a suite, or paths, or a suite and then paths.
func (c labChoice) suite(args []string) (suite.Suite, error) {
	s, _ := suite.Find("quick")
	if len(args) > 0 {
		if named, ok := suite.Find(args[0]); ok {
			s, args = named, args[1:]
		}
	}
	if err := knownPaths(append(args, optional(c.baseline)...)); err != nil {
		return s, err
	}
	if len(args) > 0 {
		s.Paths = args
	} else {
		s.Paths = append(slices.Clone(s.Paths), installed(s.IfInstalled, c.docker)...)
	}
	if c.baseline != "" {
		s.Baseline = c.baseline
	}
	if !slices.Contains(s.Paths, s.Baseline) {
		s.Paths = append([]string{s.Baseline}, s.Paths...)
	}
	s, err := s.AtMTUs(c.mtus)
	if err == nil {
		s.Family, err = result.Family(c.family).Normal()
	}
	if err == nil {
		s.Netem, err = suite.ParseNetem(c.netem)
	}
	if err != nil {
		return s, err
	}
	if err := c.narrow(&s); err != nil {
		return s, err
	}
	if len(args) == 0 {
		s.LeaveUnreached()
	}
	if err := s.Check(); err != nil {
		return s, err
	}
	if c.rounds != 0 {
		s.Rounds = c.rounds
	}
	if c.duration != 0 {
		if c.duration < s.Duration {
			s.Shorten(c.duration)
		}
		s.Duration = c.duration
		s.Warmup = min(s.Warmup, c.duration)
	}
	if s.Rounds < 1 || s.Duration < minWindow {
		return s, fmt.Errorf("rounds %d, duration %s: want at least one round, and a duration of at least %s", s.Rounds,
			s.Duration, minWindow)
	}
	return s, nil
}

// installed returns the paths whose external programs are installed, in the
// directory docker or in PATH.
func installed(paths []string, docker string) []string {
	return slices.DeleteFunc(slices.Clone(paths), func(name string) bool {
		p, _ := suite.FindPath(name)
		return peer.Missing(p, docker) != ""
	})
}

func optional(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}

func knownPaths(names []string) error {
	for _, name := range names {
		if _, ok := suite.FindPath(name); !ok {
			return fmt.Errorf("there is no suite or path %q: %s (fairlead lab list describes them)", name,
				command.Suggest(name, append(SuiteNames(), PathNames()...)))
		}
	}
	return nil
}

// SuiteNames returns the names of all suites.
func SuiteNames() []string {
	return namesOf(suite.Suites(), func(s suite.Suite) string { return s.Name })
}

// PathNames returns the names of all paths.
func PathNames() []string {
	return namesOf(suite.Paths(), func(p suite.Path) string { return p.Name })
}

// WorkloadNames returns the names of all workloads.
func WorkloadNames() []string {
	return namesOf(suite.Workloads(), func(w suite.Workload) string { return w.Name })
}

func namesOf[T any](all []T, name func(T) string) []string {
	var names []string
	for _, t := range all {
		names = append(names, name(t))
	}
	return names
}

// narrow keeps only the clients, workloads and tools that the flags name.
func (c labChoice) narrow(s *suite.Suite) error {
	if len(c.clients) > 0 {
		s.Clients = nil
	}
	for _, name := range c.clients {
		client := result.Client(name)
		if !slices.Contains(result.Clients, client) {
			return fmt.Errorf("there is no client %q: want %s", name, oneOfClients())
		}
		s.Clients = append(s.Clients, client)
	}
	for _, name := range c.tools {
		if !slices.Contains(tool.Names(), name) {
			return fmt.Errorf("there is no tool %q: want one of %s", name, strings.Join(tool.Names(), ", "))
		}
		if err := tool.Missing(name); err != nil {
			return err
		}
		if s.Family.Is6() && !tool.IPv6(name) {
			return fmt.Errorf("--with %s --family 6: versions of %[1]s before 3.8 have no IPv6, so it measures IPv4 only",
				name)
		}
	}
	return c.narrowLoads(s)
}

// oneOfClients lists the clients, for error messages.
func oneOfClients() string { return model.OneOf(result.Clients) }

// narrowLoads keeps only the workloads that the flags name and that the clients
// support.
func (c labChoice) narrowLoads(s *suite.Suite) error {
	own := *s
	if len(c.loads) > 0 {
		s.Workloads = nil
	}
	for _, name := range c.loads {
		w, ok := own.FindWorkload(name)
		if !ok {
			return fmt.Errorf("there is no workload %q: %s", name,
				command.Suggest(name, WorkloadNames()))
		}
		s.Workloads = append(s.Workloads, w)
	}
	if slices.Contains(s.Clients, result.Remote) {
		return nil
	}
	fails := func(w suite.Workload) bool { return w.Event != "" }
	if i := slices.IndexFunc(s.Workloads, fails); i >= 0 && len(c.loads) > 0 {
		return fmt.Errorf("workload %s is measured from the client remote only: choose another --workload, or "+
			"--client remote", s.Workloads[i].Name)
	}
	s.Workloads = slices.DeleteFunc(slices.Clone(s.Workloads), fails)
	return nil
}

// conditionsFor parses the --fail-if conditions and checks their names against the
// planned measurements and the history, so that a mistake is found before they begin.
func (c labChoice) conditionsFor(s suite.Suite, past *labHistory) error {
	for _, source := range c.conditions {
		e, err := expr.Parse(source)
		if err != nil {
			return fmt.Errorf("fail-if: %w", err)
		}
		past.conditions = append(past.conditions, e)
	}
	if err := past.prepare(result.Report{Suite: s.Name, Duration: s.Duration.Seconds(), Family: s.Family,
		Netem: s.Netem}); err != nil {
		return err
	}
	for _, e := range past.conditions {
		if err := e.Check(runner.Cases(s, c.tools)); err != nil {
			return fmt.Errorf("fail-if: %w", err)
		}
	}
	return nil
}
