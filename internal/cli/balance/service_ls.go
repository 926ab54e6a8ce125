package balance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"fairlead/internal/api"
	"fairlead/internal/cli/command"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/model"
	"fairlead/internal/syntax"
	"fairlead/internal/wording"

	"github.com/spf13/cobra"
)

func newServiceList(a *command.App) *cobra.Command {
	r := &command.Remote{App: a}
	notUp := false
	c := &cobra.Command{
		Use:   "ls [NAME…]",
		Short: "List virtual services and their real servers",
		Long: "List virtual services and their real servers, in the columns of `ipvsadm -l -n`: how each\n" +
			"service forwards, and each real server's weight and open connections. STATE, SINCE and CAUSE\n" +
			"show the state of a real server. A dash marks a figure that the data plane does not count,\n" +
			"or has not counted yet.",
		Example: "  fairlead service ls\n  fairlead service ls --not-up\n  fairlead service ls web -o json",
		Args:    command.Arguments(cobra.ArbitraryArgs),
		RunE: func(c *cobra.Command, args []string) error {
			return r.Read(c.Context(), func(client *admin.Client) error {
				all, err := named(c.Context(), client, args)
				if err != nil {
					return err
				}
				if notUp {
					all = onlyNotUp(all)
				}
				if r.Output == "json" {
					return r.JSON(admin.Services{Services: all})
				}
				return printServices(r, all)
			}, func(w model.Desired) error { return noServices(r, w) })
		},
		ValidArgsFunction: completeServices(r),
	}
	r.Flags(c)
	c.Flags().BoolVar(&notUp, "not-up", false, "list only real servers that are not up, and services that are not "+
		"up or have such a server")
	return c
}

// onlyNotUp returns the services that are not up or have real servers that are
// not up. Each service has only these real servers.
func onlyNotUp(all []api.ServiceView) []api.ServiceView {
	some := []api.ServiceView{}
	for _, v := range all {
		v.Servers = slices.DeleteFunc(v.Servers, func(s api.RealView) bool { return s.State == api.RealUp })
		if v.Status != api.ServiceUp || v.Problem != "" || len(v.Servers) > 0 {
			some = append(some, v)
		}
	}
	return some
}

// noServices lists the services while no daemon runs. It returns an error if
// services are stored, because the state of their real servers is not.
func noServices(r *command.Remote, w model.Desired) error {
	if len(w.Services) > 0 {
		return fmt.Errorf("no daemon runs at %s, so the real servers of the %d stored services are not checked: start it with `systemctl start fairlead` or `fairlead daemon`", r.Socket, len(w.Services))
	}
	if r.Output == "json" {
		return r.JSON(admin.Services{})
	}
	return printServices(r, nil)
}

// named returns the services with the given names, or all if there are no names.
func named(ctx context.Context, client *admin.Client, names []string) ([]api.ServiceView, error) {
	if len(names) == 0 {
		return client.Services(ctx)
	}
	var all []api.ServiceView
	for _, name := range names {
		v, err := client.Service(ctx, name)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, nil
}

// printServices prints services, and below each its real servers. Services and
// real servers have different columns.
func printServices(r *command.Remote, all []api.ServiceView) error {
	heads := [][]string{{"NAME", "PROT", "LOCAL ADDRESS:PORT", "SCHEDULER", "PLANE", "STATE"}}
	reals := [][]string{{"  -> REMOTE ADDRESS:PORT", "FORWARD", "WEIGHT", "ACTIVE", "STATE", "SINCE", "CAUSE"}}
	for _, v := range all {
		heads = append(heads, wording.ServiceRow(v))
		for _, s := range v.Servers {
			reals = append(reals, wording.RealRow(v, s))
		}
	}
	headLines, realLines := columns(heads), columns(reals)
	lines := []string{headLines[0], realLines[0]}
	at := 1
	for i, v := range all {
		lines = append(lines, headLines[i+1])
		lines = append(lines, realLines[at:at+len(v.Servers)]...)
		at += len(v.Servers)
	}
	return r.Out.Lines(lines...)
}

// columns aligns rows of the same number of cells.
func columns(rows [][]string) []string {
	widths := make([]int, len(rows[0]))
	for j, row := range rows {
		row = command.Cells(row)
		rows[j] = row
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	lines := make([]string, len(rows))
	for j, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(cell + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2))
		}
		lines[j] = strings.TrimRight(line.String(), " ")
	}
	return lines
}

func newServiceShow(a *command.App) *cobra.Command {
	r := &command.Remote{App: a}
	c := &cobra.Command{
		Use:   "show NAME",
		Short: "Show a virtual service in full",
		Long: "Show all settings of a virtual service, its real servers, and the result of each real\nserver's " +
			"last health check. If a real server of a cluster's service is down, the result of each\n" +
			"node that accepts the service's clients is shown.",
		Example: "  fairlead service show web\n  fairlead service show web -o json",
		Args:    command.Arguments(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			return r.Read(c.Context(), func(client *admin.Client) error {
				v, err := client.Service(c.Context(), args[0])
				if err != nil {
					return err
				}
				if r.Output == "json" {
					return r.JSON(v)
				}
				return printService(r, v)
			}, nil)
		},
		ValidArgsFunction: completeServices(r),
	}
	r.Flags(c)
	return c
}

func printService(r *command.Remote, v api.ServiceView) error {
	if err := printServices(r, []api.ServiceView{v}); err != nil {
		return err
	}
	rows := [][]string{}
	for _, set := range []struct {
		prefix string
		fields []syntax.ServiceField
	}{{"", syntax.ServiceFields()}, {"check ", syntax.CheckFields()}} {
		for _, f := range set.fields {
			if value := f.Get(v.VirtualService); value != "" {
				rows = append(rows, []string{set.prefix + f.Name, value})
			}
		}
	}
	if len(v.Check.Command) > 0 {
		rows = append(rows, []string{"check command", strings.Join(v.Check.Command, " ")})
	}
	for _, real := range v.Reals {
		rows = append(rows, []string{"real", syntax.FormatReal(real)})
	}
	for _, f := range v.FastPath {
		rows = append(rows, []string{"fast path", f.String()})
	}
	if v.Origin != model.FromCommand {
		rows = append(rows, []string{"declared by", string(v.Origin)})
	}
	if err := r.Out.Line(""); err != nil {
		return err
	}
	if err := r.Tabled(rows); err != nil {
		return err
	}
	return errors.Join(printFindings(r, v), printNodes(r, v))
}

// printNodes prints what other nodes find of the real servers that are down for one of them.
func printNodes(r *command.Remote, v api.ServiceView) error {
	rows := [][]string{{"REAL SERVER", "NODE", "FOUND THERE"}}
	for _, s := range v.Servers {
		for _, n := range s.Nodes {
			found := string(n.State)
			if n.Problem != "" {
				found = "unknown: " + n.Problem
			}
			rows = append(rows, []string{wording.RealText(s), n.Node, wording.OrDash(found)})
		}
	}
	if len(rows) == 1 {
		return nil
	}
	return errors.Join(r.Out.Line(""), r.Tabled(rows))
}

// printFindings prints the result of each real server's last check.
func printFindings(r *command.Remote, v api.ServiceView) error {
	rows := [][]string{{"CHECKED", "AGO", "TOOK", "FOUND"}}
	for _, s := range v.Servers {
		if !s.Checked.IsZero() {
			rows = append(rows, []string{wording.RealText(s), wording.Age(s.Checked),
				s.Latency.Round(10 * time.Microsecond).String(),
				wording.OrDash(s.Found)})
		}
	}
	if len(rows) == 1 {
		return nil
	}
	if err := r.Out.Line(""); err != nil {
		return err
	}
	return r.Tabled(rows)
}
