package cluster

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/cli/command"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/wording"

	"github.com/spf13/cobra"
)

func newStatus(a *command.App) *cobra.Command {
	return newQuery(a, &cobra.Command{
		Use:   "status",
		Short: "Show the nodes of the cluster, its virtual addresses, its etcd, and what is frozen",
		Long: "Show the cluster as this host sees it: each node, since when its daemon runs, and its problems; who\n" +
			"holds each virtual address, since when, and the rest of its lease; and the servers of etcd. The\n" +
			"other nodes are asked how many changes of the cluster they have not applied yet, and whether they\n" +
			"are frozen, and why. A node that does not answer within a second has a dash there.\n" +
			"The exit code is 1 if etcd does not answer or does not accept changes of this host, or if this host is\n" +
			"frozen or is no working node.",
		Example: "  fairlead cluster status\n  fairlead cluster status -o json",
	}, admin.ShowNodes, printStatus)
}

// printStatus prints the status. It returns an error if the cluster does not work on this host.
func printStatus(r *command.Remote, s api.ClusterStatus) error {
	if r.Output == "json" {
		if err := r.JSON(s); err != nil {
			return err
		}
		return wording.ClusterFailure(s)
	}
	if err := r.Out.Line("cluster %s, node %s", s.Name, s.Node); err != nil {
		return err
	}
	rows := [][]string{{"NODE", "ADDRESSES", "VERSION", "STATE", "SINCE", "BEHIND"}}
	for _, n := range s.Nodes {
		var addresses []string
		for _, a := range n.Addresses {
			addresses = append(addresses, a.String())
		}
		since, behind := "-", "-"
		if n.Alive {
			since = n.Since.Local().Format(time.DateTime)
		}
		if n.Answered {
			behind = fmt.Sprint(n.Behind)
		}
		rows = append(rows, []string{n.Name, wording.OrDash(strings.Join(addresses, " ")), wording.OrDash(n.Version),
			wording.NodeState(n), since, behind})
	}
	if err := r.Out.Table(rows); err != nil {
		return err
	}
	if len(s.Addresses) > 0 {
		if err := r.Out.Table(wording.AddressRows(s.Addresses)); err != nil {
			return err
		}
	}
	if err := printProblems(r, s); err != nil {
		return err
	}
	if err := printEtcd(r, s.Etcd); err != nil {
		return err
	}
	return wording.ClusterFailure(s)
}

// printProblems prints the problems of all nodes, each once, and why others are frozen. failure has why this one is.
func printProblems(r *command.Remote, s api.ClusterStatus) error {
	on := map[string][]string{}
	var problems []string
	for _, n := range s.Nodes {
		if n.Frozen != "" && n.Name != s.Node {
			if err := r.Out.Line("%s is frozen: %s", n.Name, n.Frozen); err != nil {
				return err
			}
		}
		for _, p := range n.Problems {
			if on[p] == nil {
				problems = append(problems, p)
			}
			on[p] = append(on[p], n.Name)
		}
	}
	for _, p := range problems {
		if err := r.Out.Line("problem on %s: %s", strings.Join(on[p], ", "), p); err != nil {
			return err
		}
	}
	return nil
}

// printEtcd prints one line per server of etcd, and each warning once.
func printEtcd(r *command.Remote, e api.EtcdHealth) error {
	rows := [][]string{{"ETCD", "VERSION", "ROLE", "SIZE", "STATE"}}
	warned := map[string]bool{}
	var warnings []string
	for _, s := range e.Servers {
		for _, w := range s.Warnings {
			if !warned[w] {
				warnings = append(warnings, w)
			}
			warned[w] = true
		}
		rows = append(rows, wording.EtcdRow(e, s))
	}
	err := r.Out.Table(rows)
	for _, w := range warnings {
		err = errors.Join(err, r.Out.Line("warning: %s", w))
	}
	return err
}
