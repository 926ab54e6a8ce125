package measure

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"fairlead/internal/cli/command"
	"fairlead/internal/kernel"
	"fairlead/internal/paths"
	"fairlead/internal/plan"
	"fairlead/internal/promise"
	"fairlead/internal/threat"
	"fairlead/internal/wording"

	"github.com/spf13/cobra"
)

// NewPaths returns the command `fairlead paths`.
func NewPaths(a *command.App) *cobra.Command {
	attacks := false
	cmd := &cobra.Command{
		Use:   "paths",
		Short: "Show the paths to a container, and what each promises",
		Long: "Show each path: a driver, alone and with each publish mode. For each path, show what it\n" +
			"promises, what it needs, and, for root, the reason if this kernel cannot build it. With\n" +
			"-o markdown the kernel is not considered.",
		Example: "  fairlead paths\n  fairlead paths -o json\n  fairlead paths --attacks",
		Args:    command.Arguments(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			if attacks {
				return showAttacks(a)
			}
			if a.Output == "markdown" {
				return markdownPaths(a.Out.Document(), paths.Table(plan.Facts{}))
			}
			facts, err := probed(a)
			if err != nil {
				return command.Usage(err)
			}
			table := paths.Table(facts)
			if a.Output == "json" {
				return a.JSON(table)
			}
			width, _ := a.Out.Width()
			return printPaths(a.Out.Document(), table, width)
		},
	}
	cmd.Flags().BoolVar(&attacks, "attacks", false, "show what attackers can and cannot do on each path, instead of "+
		"the promises")
	return cmd
}

// probed returns what this kernel has. Only root can test that; for others the table is
// that of a kernel with everything.
func probed(a *command.App) (plan.Facts, error) {
	if os.Geteuid() != 0 {
		a.Err.Note("fairlead: what this kernel can build is not shown: that needs root, e.g. with sudo")
		return plan.Facts{}, nil
	}
	return kernel.Probe()
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

// terminalWidth is the width of a line if the output is not a terminal.
const terminalWidth = 80

// printPaths writes the promises of the drivers and of the publish modes in tables of
// the given width, then what each path needs from the kernel, and the paths that this
// kernel cannot build.
func printPaths(out io.Writer, table []paths.Path, width int) error {
	alone, published := split(table)
	for _, part := range []struct {
		rows      []paths.Path
		questions []promise.Question
	}{{alone, promise.Driver()}, {published, promise.Publish()}} {
		for _, some := range columns(part.rows, part.questions, cmp.Or(width, terminalWidth)) {
			if err := printPromises(out, some, part.questions); err != nil {
				return err
			}
		}
	}
	if err := printNeeds(out, table, cmp.Or(width, terminalWidth)); err != nil {
		return err
	}
	for _, p := range table {
		if p.Unavailable != "" {
			fmt.Fprintf(out, "%s cannot be built on this host: %s\n", wording.PathName(p), p.Unavailable)
		}
	}
	_, err := fmt.Fprintln(out, "Reasons and limits: fairlead paths -o json, or the page of each path.")
	return err
}

// columns divides paths into tables with one column per path, none of which is wider
// than width if it has more than one path.
func columns(all []paths.Path, questions []promise.Question, width int) (tables [][]paths.Path) {
	first := 0
	for _, q := range questions {
		first = max(first, len(q))
	}
	used := width
	for _, p := range all {
		own := 2 + max(len(wording.PathName(p)), len("yes"))
		if used+own > width {
			tables, used = append(tables, nil), first
		}
		last := len(tables) - 1
		tables[last], used = append(tables[last], p), used+own
	}
	return tables
}

// printNeeds writes what each path needs from the kernel.
func printNeeds(out io.Writer, table []paths.Path, width int) error {
	first := 0
	for _, p := range table {
		first = max(first, len(wording.PathName(p)))
	}
	const release = 5 // the width of the column Linux
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "needs\tLinux\tfeatures")
	for _, p := range table {
		if p.Kernel == "" {
			continue
		}
		begin := wording.PathName(p) + "\t" + p.Kernel + "\t"
		for _, line := range features(p.Needs, width-first-release-4) {
			fmt.Fprintln(w, begin+line)
			begin = "\t\t"
		}
	}
	fmt.Fprintln(w)
	return w.Flush()
}

// printPromises writes one table.
func printPromises(out io.Writer, rows []paths.Path, questions []promise.Question) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	head := "path"
	for _, p := range rows {
		head += "\t" + wording.PathName(p)
	}
	fmt.Fprintln(w, head)
	for _, q := range questions {
		line := string(q)
		for _, p := range rows {
			line += "\t" + wording.YesNo(p.Promises[q])
		}
		fmt.Fprintln(w, line)
	}
	fmt.Fprintln(w)
	return w.Flush()
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
			head += " " + wording.PathName(p) + " |"
			rule += "---|"
		}
		fmt.Fprintf(out, "%s\n%s\n", head, rule)
		for _, q := range part.questions {
			line := "| " + string(q) + " |"
			for _, p := range part.rows {
				answer := p.Promises[q]
				line += " " + strings.TrimSuffix(wording.YesNo(answer)+": "+answer.How, ": ") + " |"
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

// features lists features in lines of at most the width, one line if there are none.
func features(needs []plan.Feature, width int) []string {
	lines := []string{""}
	for i, n := range needs {
		word := string(n)
		if i < len(needs)-1 {
			word += ","
		}
		last := &lines[len(lines)-1]
		switch {
		case *last == "":
			*last = word
		case len(*last)+1+len(word) > width:
			lines = append(lines, word)
		default:
			*last += " " + word
		}
	}
	return lines
}
