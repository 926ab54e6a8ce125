package measure

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"fairlead/internal/model"
	"fairlead/internal/threat"
)

// attackPath is a column of the table of attacks.
type attackPath struct {
	driver  model.Driver
	via     model.Via
	setting threat.Setting
}

func (p attackPath) String() string {
	if p.setting != "" {
		return string(p.driver) + ", " + string(p.setting)
	}
	if p.via == "" {
		return string(p.driver)
	}
	return string(p.driver) + "+" + string(p.via)
}

// attackTable is one part of the table. Each row is one attack by one attacker.
type attackTable struct {
	columns []attackPath
	rows    [][]threat.Cell
}

// attackTables returns the cells as three tables: one for attached sandboxes by driver, one
// for published ports by driver and publish mode, and one for what sandboxes send first, by
// driver and setting of the network.
func attackTables(Cells []threat.Cell) [3]attackTable {
	var tables [3]attackTable
	for _, c := range Cells {
		t := &tables[0]
		switch {
		case c.Attack.IsOutbound():
			t = &tables[2]
		case c.Via != "":
			t = &tables[1]
		}
		if at := (attackPath{c.Driver, c.Via, c.Setting}); !slices.Contains(t.columns, at) {
			t.columns = append(t.columns, at)
		}
		last := len(t.rows) - 1
		if last < 0 || t.rows[last][0].Attack != c.Attack || t.rows[last][0].Attacker != c.Attacker {
			t.rows = append(t.rows, nil)
			last++
		}
		t.rows[last] = append(t.rows[last], c)
	}
	return tables
}

// reasons numbers the reasons of cells in the order in which they appear.
type reasons []string

// text returns a cell's text with the number of its reason, which it adds to r.
func (r *reasons) text(c threat.Cell) string {
	if !c.Can {
		return "no"
	}
	at := slices.Index(*r, c.How)
	if at < 0 {
		at = len(*r)
		*r = append(*r, c.How)
	}
	answer := "can"
	if c.IPv6Only {
		answer = "IPv6 can"
	}
	return fmt.Sprintf("%s (%d)", answer, at+1)
}

// printAttacks writes the tables for a terminal.
func printAttacks(out io.Writer, Cells []threat.Cell) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	var why reasons
	for _, t := range attackTables(Cells) {
		attack := threat.Attack("")
		for _, row := range t.rows {
			if row[0].Attack != attack {
				attack = row[0].Attack
				fmt.Fprintf(w, "%s\n", attack)
				fmt.Fprintf(w, "  \t%s\n", join(t.columns))
			}
			line := "  " + string(row[0].Attacker)
			for _, c := range row {
				line += "\t" + why.text(c)
			}
			fmt.Fprintln(w, line)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for i, reason := range why {
		if _, err := fmt.Fprintf(out, "(%d) %s\n", i+1, reason); err != nil {
			return err
		}
	}
	return nil
}

func join(paths []attackPath) string {
	return strings.Join(namesOf(paths, attackPath.String), "\t")
}

// markdownAttacks writes the tables as Markdown for the documentation.
func markdownAttacks(out io.Writer, Cells []threat.Cell) error {
	var why reasons
	for _, t := range attackTables(Cells) {
		head, rule := "| attack | attacker |", "|---|---|"
		for _, p := range t.columns {
			head += " " + p.String() + " |"
			rule += "---|"
		}
		fmt.Fprintf(out, "%s\n%s\n", head, rule)
		for _, row := range t.rows {
			line := fmt.Sprintf("| %s | %s |", row[0].Attack, row[0].Attacker)
			for _, c := range row {
				line += " " + why.text(c) + " |"
			}
			fmt.Fprintln(out, line)
		}
		fmt.Fprintln(out)
	}
	for i, reason := range why {
		if _, err := fmt.Fprintf(out, "%d. %s.\n", i+1, strings.ToUpper(reason[:1])+reason[1:]); err != nil {
			return err
		}
	}
	return nil
}
