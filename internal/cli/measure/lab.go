// Package measure has the commands that measure paths and choose among them.
package measure

import (
	"fmt"
	"math"
	"slices"
	"text/tabwriter"

	"fairlead/internal/cli/command"
	"fairlead/internal/kernel"
	"fairlead/internal/lab/peer"
	"fairlead/internal/lab/runner"
	"fairlead/internal/lab/suite"

	"github.com/spf13/cobra"
)

// NewLab returns the command `fairlead lab`.
func NewLab(a *command.App) *cobra.Command {
	lab := &cobra.Command{
		Use:     "lab",
		Short:   "Measure what each path costs on this machine",
		Example: "  fairlead lab run\n  fairlead lab run publish --html publish.html\n  fairlead lab compare before.json after.json",
	}
	lab.AddCommand(newLabList(a), newLabRun(a), newLabReport(a), newLabCompare(a), newLabHistory(a), newLabRecord(a),
		newLabAgent(a))
	return lab
}

func newLabList(a *command.App) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the suites and the paths",
		Example: "  fairlead lab list\n  fairlead lab list -o json",
		Args:    command.Arguments(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			if a.Output == "json" {
				return a.JSON(listing())
			}
			return printListing(a, listing())
		},
	}
}

// labListing is what `lab list` shows.
type labListing struct {
	Suites []listedSuite `json:"suites"`
	Paths  []listedPath  `json:"paths"`
}

type listedSuite struct {
	Name     string   `json:"name"`
	Question string   `json:"question"`
	Paths    []string `json:"paths"`
	// IfInstalled are paths that are also measured if their programs are
	// installed.
	IfInstalled []string `json:"if_installed,omitempty"`
	Workloads   []string `json:"workloads"`
	// Seconds is an estimate of how long the suite takes with all of its paths.
	Seconds float64 `json:"seconds"`
}

type listedPath struct {
	Name  string `json:"name"`
	About string `json:"about"`
	// Unavailable is the reason why this host cannot build the path.
	Unavailable string `json:"unavailable,omitempty"`
}

func listing() labListing {
	var l labListing
	for _, s := range suite.Suites() {
		listed := listedSuite{Name: s.Name, Question: s.Question, Paths: s.Paths, IfInstalled: s.IfInstalled}
		s.Paths = append(slices.Clone(s.Paths), s.IfInstalled...)
		_, takes := runner.Runs(runner.Options{Suite: s})
		listed.Seconds = takes.Seconds()
		listed.Workloads = namesOf(s.Workloads, func(w suite.Workload) string { return w.Name })
		l.Suites = append(l.Suites, listed)
	}
	// Without root the kernel cannot be probed, and only missing programs are shown.
	facts, _ := kernel.Probe()
	for _, p := range suite.Paths() {
		l.Paths = append(l.Paths, listedPath{Name: p.Name, About: p.About, Unavailable: peer.Unavailable(p, facts, "")})
	}
	return l
}

func printListing(a *command.App, l labListing) error {
	w := tabwriter.NewWriter(a.Out.Document(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SUITE\tTAKES\tQUESTION")
	for _, s := range l.Suites {
		fmt.Fprintf(w, "%s\t%s\t%s\n", s.Name, roughly(s.Seconds), s.Question)
	}
	fmt.Fprintln(w, "\nPATH\tDESCRIPTION")
	for _, p := range l.Paths {
		About := p.About
		if p.Unavailable != "" {
			About += " (not available: " + p.Unavailable + ")"
		}
		fmt.Fprintf(w, "%s\t%s\n", p.Name, About)
	}
	return w.Flush()
}

// roughly writes an estimate of a duration, in minutes or in hours.
func roughly(seconds float64) string {
	if hours := seconds / 3600; hours >= 1.5 {
		return fmt.Sprintf("%.0f h", hours)
	}
	return fmt.Sprintf("%.0f min", math.Max(1, seconds/60))
}
