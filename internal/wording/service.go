package wording

import (
	"fmt"
	"strings"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/model"
)

// ServiceRow returns the cells of a service: NAME, PROT, LOCAL ADDRESS:PORT, SCHEDULER, PLANE, STATE.
func ServiceRow(v api.ServiceView) []string {
	scheduler, plane := string(v.Scheduler), string(v.PlaneInUse)
	if scheduler == "" {
		scheduler = string(model.DefaultScheduler)
	}
	switch {
	case v.Forward == model.ForwardLocal:
		scheduler, plane = "-", string(v.Forward)
	case v.NoIngress:
		scheduler, plane = "-", ""
	}
	state := string(v.Status)
	if v.Problem != "" {
		state += ": " + v.Problem
	}
	return []string{v.Name, strings.ToUpper(string(v.Proto)), LocalText(v.VirtualService), scheduler,
		OrDash(plane), state}
}

// LocalText writes the addresses and ports of a service: 192.0.2.10:80,443.
func LocalText(v model.VirtualService) string {
	var ports, all []string
	for _, p := range v.Ports {
		ports = append(ports, p.String())
	}
	for _, a := range v.Addresses {
		host := a.String()
		if a.Is6() {
			host = "[" + host + "]"
		}
		all = append(all, host+":"+strings.Join(ports, ","))
	}
	return strings.Join(all, " ")
}

// RealText writes the address and port of a real server.
func RealText(s api.RealView) string {
	return model.RealServer{Address: s.Address, Port: s.Port}.String()
}

// RealRow returns the cells of a real server: REMOTE ADDRESS:PORT, FORWARD, WEIGHT, ACTIVE, STATE, SINCE, CAUSE.
func RealRow(v api.ServiceView, s api.RealView) []string {
	forward := string(v.Forward)
	if forward == "" {
		forward = string(model.ForwardNAT)
	}
	if v.Tunnel != (model.Tunnel{}) {
		forward += " " + v.Tunnel.String()
	}
	weight := fmt.Sprint(s.Weight)
	if s.Share < 100 && s.Weight > 0 {
		weight += fmt.Sprintf(" (%d%%)", s.Share)
	}
	cause := s.Cause
	if s.State == api.RealDraining && !s.Deadline.IsZero() {
		cause += fmt.Sprintf(", until %s", s.Deadline.Local().Format(time.TimeOnly))
	}
	if !s.Until.IsZero() {
		cause += fmt.Sprintf(", at %s", s.Until.Local().Format(time.TimeOnly))
	}
	cause = strings.TrimPrefix(cause+elsewhere(s), "; ")
	name := "  -> " + RealText(s)
	if s.Endpoint != "" {
		name += " (" + s.Endpoint + ")"
	}
	return []string{name, forward, weight, Number(s.Flows), string(s.State), Age(s.Since),
		OrDash(cause)}
}

// elsewhere writes which other nodes find a real server in another state, or that none does.
func elsewhere(s api.RealView) string {
	differs, text := api.RealDown, "; down on "
	switch {
	case s.Removed:
		return "; all nodes that answer agree"
	case s.State == api.RealDown:
		differs, text = api.RealUp, "; up on "
	}
	var names []string
	for _, n := range s.Nodes {
		if n.State == differs {
			names = append(names, n.Node)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return text + strings.Join(names, ", ")
}

// Age writes the time since then in its largest unit: 5s, 3m, 2h or 4d.
func Age(since time.Time) string {
	d := time.Since(since)
	switch {
	case since.IsZero():
		return "-"
	case d < time.Minute:
		return fmt.Sprintf("%ds", max(0, int(d.Seconds())))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}
