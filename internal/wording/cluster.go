package wording

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"fairlead/internal/api"
)

// NodeState returns the state of a node in words.
func NodeState(n api.ClusterNodeStatus) string {
	state := "alive"
	if !n.Alive {
		state = "not seen"
	}
	if n.Drained {
		state += ", drained"
	}
	if n.Frozen != "" {
		state += ", frozen"
	}
	return state
}

// ClusterFailure returns an error if the cluster does not work on this host.
func ClusterFailure(s api.ClusterStatus) error {
	switch {
	case s.Problem != "":
		return fmt.Errorf("%s", s.Problem)
	case s.Frozen != "":
		return fmt.Errorf("this host is frozen: %s", s.Frozen)
	case s.Etcd.Frozen != "":
		return fmt.Errorf("this host is frozen: %s: if etcd has the right records, run `fairlead cluster accept`",
			s.Etcd.Frozen)
	case s.Etcd.Refused != "":
		return fmt.Errorf("etcd does not accept changes of this host: the other hosts do not get them until it does, and "+
			"traffic continues: %s", s.Etcd.Refused)
	case !s.Etcd.Connected:
		return fmt.Errorf("etcd does not answer since %s: nothing changes on this host until it does, and traffic "+
			"continues: %s", s.Etcd.Since.Local().Format(time.DateTime), OrDash(s.Etcd.Problem))
	}
	return nil
}

// AddressRows returns the table of virtual addresses.
func AddressRows(all []api.ClusterAddress) [][]string {
	rows := [][]string{{"ADDRESS", "HOLDER", "SINCE", "LEASE", "HOLD", "CANDIDATES", "STATE"}}
	for _, v := range all {
		since, lease, hold, candidates := "-", "-", "-", "all"
		if v.Holder != "" {
			since = v.Since.Local().Format(time.DateTime)
		}
		if v.Lease > 0 {
			lease = v.Lease.Round(time.Millisecond).String()
		}
		if v.Hold > 0 {
			hold = v.Hold.String()
		}
		if len(v.Candidates) > 0 {
			candidates = strings.Join(v.Candidates, " ")
		}
		rows = append(rows, []string{v.Address.String(), OrDash(v.Holder), since, lease, hold,
			candidates, AddressState(v)})
	}
	return rows
}

// AddressState returns the state of a virtual address in words.
func AddressState(v api.ClusterAddress) string {
	switch {
	case v.Removed:
		return "being removed"
	case v.Announce != "":
		return "announced by " + strings.ToUpper(v.Announce)
	case v.Target != "":
		return "moves to " + v.Target
	case v.Holder == "":
		return "no holder"
	case v.Conflict != nil:
		return "conflict with " + v.Conflict.MAC + " at " + v.Conflict.At.Local().Format(time.DateTime)
	case v.Lease == 0:
		return "not renewed for " + v.Renewed.Round(100*time.Millisecond).String()
	}
	return "held"
}

// SessionRows returns the table of routers.
func SessionRows(all []api.ClusterBGPSession) [][]string {
	rows := [][]string{{"ROUTER", "AS", "LOCAL AS", "NODES", "STATE", "SINCE", "BFD"}}
	for _, v := range all {
		since, nodes := "-", "all"
		if !v.Since.IsZero() {
			since = v.Since.Local().Format(time.DateTime)
		}
		if len(v.Nodes) > 0 {
			nodes = strings.Join(v.Nodes, " ")
		}
		rows = append(rows, []string{v.Address.String(), strconv.FormatUint(uint64(v.AS), 10),
			strconv.FormatUint(uint64(v.LocalAS), 10), nodes, OrDash(v.State), since,
			OrDash(v.BFDState)})
	}
	return rows
}

// EtcdRow returns the cells of a server of etcd: ETCD, VERSION, ROLE, SIZE, STATE.
func EtcdRow(e api.EtcdHealth, s api.EtcdServer) []string {
	role, state, size := "follower", "ok", "-"
	switch {
	case e.Refused != "":
		state = "refuses changes"
	case !e.Connected:
		state = "answers"
	}
	if s.Leader {
		role = "leader"
	}
	if s.Size > 0 {
		size = fmt.Sprintf("%.1f MB", float64(s.Size)/1e6)
	}
	if s.Problem != "" {
		role, state = "-", s.Problem
	}
	return []string{s.Endpoint, OrDash(s.Version), role, size, state}
}
