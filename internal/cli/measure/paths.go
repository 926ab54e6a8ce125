package measure

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"fairlead/internal/cli/command"
	"fairlead/internal/kernel"
	"fairlead/internal/paths"
	"fairlead/internal/plan"
	"fairlead/internal/promise"
	"fairlead/internal/threat"

	"github.com/spf13/cobra"
)

// NewPaths returns the command `fairlead paths`.
func NewPaths(a *command.App) *cobra.Command {
	attacks := false
	cmd := &cobra.Command{
		Use:   "paths",
		Short: "Show the paths to a container, and what each promises",
		Long: "Show each path: a driver, alone and with each publish mode. For each path, show what it\n" +
			"promises, what it needs, and the reason if this kernel cannot build it. With -o markdown\n" +
			"the kernel is not considered.",
		Example: "  fairlead paths\n  fairlead paths -o json\n  fairlead paths --attacks",
		Args:    command.Arguments(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			if attacks {
				return showAttacks(a)
			}
			if a.Output == "markdown" {
				return markdownPaths(a.Out.Document(), paths.Table(plan.Facts{}))
			}
			facts, err := kernel.Probe()
			if err != nil {
				return command.Usage(err)
			}
			table := paths.Table(facts)
			if a.Output == "json" {
				return a.JSON(table)
			}
			return printPaths(a.Out.Document(), table)
		},
	}
	cmd.Flags().BoolVar(&attacks, "attacks", false, "show what attackers can and cannot do on each path, instead of "+
		"the promises")
	return cmd
}

// showAttacks writes the table of attacks.
func showAttacks(a *command.App) error {
	switch a.Output {
	case "markdown":
		return markdownAttacks(a.Out.Document(), threat.Table())
	case "json":
		return a.JSON(threat.Table())
	}
	return printAttacks(a.Out.Document(), threat.Table())
}

// printPaths writes the promises of the drivers and of the publish modes, then
// what each path needs from the kernel, and the paths that this kernel cannot
// build.
func printPaths(out io.Writer, table []paths.Path) error {
	alone, published := split(table)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, part := range []struct {
		rows      []paths.Path
		questions []promise.Question
	}{{alone, promise.Driver()}, {published, promise.Publish()}} {
		head := "path"
		for _, p := range part.rows {
			head += "\t" + name(p)
		}
		fmt.Fprintln(w, head)
		for _, q := range part.questions {
			line := string(q)
			for _, p := range part.rows {
				line += "\t" + cell(p.Promises[q])
			}
			fmt.Fprintln(w, line)
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w, "needs\tLinux\tfeatures")
	for _, p := range table {
		if p.Kernel != "" {
			fmt.Fprintf(w, "%s\t%s\t%s\n", name(p), p.Kernel, features(p.Needs))
		}
	}
	fmt.Fprintln(w)
	if err := w.Flush(); err != nil {
		return err
	}
	for _, p := range table {
		if p.Unavailable != "" {
			fmt.Fprintf(out, "%s cannot be built on this host: %s\n", name(p), p.Unavailable)
		}
	}
	_, err := fmt.Fprintln(out, "Reasons and limits: fairlead paths -o json, or the page of each path.")
	return err
}

// markdownPaths writes the promises and their reasons as Markdown for the
// documentation.
func markdownPaths(out io.Writer, table []paths.Path) error {
	alone, published := split(table)
	for i, part := range []struct {
		rows      []paths.Path
		questions []promise.Question
	}{{alone, promise.Driver()}, {published, promise.Publish()}} {
		if i > 0 {
			fmt.Fprintln(out)
		}
		head, rule := "| promise |", "|---|"
		for _, p := range part.rows {
			head += " " + name(p) + " |"
			rule += "---|"
		}
		fmt.Fprintf(out, "%s\n%s\n", head, rule)
		for _, q := range part.questions {
			line := "| " + string(q) + " |"
			for _, p := range part.rows {
				answer := p.Promises[q]
				line += " " + strings.TrimSuffix(cell(answer)+": "+answer.How, ": ") + " |"
			}
			if _, err := fmt.Fprintln(out, line); err != nil {
				return err
			}
		}
	}
	return nil
}

func split(table []paths.Path) (alone, published []paths.Path) {
	for _, p := range table {
		if p.Via == "" {
			alone = append(alone, p)
		} else {
			published = append(published, p)
		}
	}
	return alone, published
}

func name(p paths.Path) string {
	if p.Via == "" {
		return string(p.Driver)
	}
	return string(p.Driver) + "+" + string(p.Via)
}

func features(needs []plan.Feature) string {
	var names []string
	for _, n := range needs {
		names = append(names, string(n))
	}
	return strings.Join(names, ", ")
}

func cell(a promise.Answer) string {
	if a.Kept {
		return "yes"
	}
	return "no"
}
