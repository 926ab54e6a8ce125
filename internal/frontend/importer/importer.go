// Package importer converts the configurations of other IPVS balancers: the output of
// `ipvsadm -S -n`, and the virtual_server and vrrp_instance blocks of keepalived.conf(5).
// It converts text to services and virtual addresses, and reports each line that these do
// not represent. It does not apply anything.
package importer

import (
	"bytes"
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"fairlead/internal/api"
	"fairlead/internal/model"
)

// Imported is the result of an import.
type Imported struct {
	Services []model.VirtualService
	// Addresses are virtual addresses of the cluster, with the default candidates.
	Addresses []api.ClusterAddressSpec
	// Reports describe what the services and addresses do not represent, sorted by line.
	Reports []Report
}

// Report describes something that was not imported, or that was changed.
type Report struct {
	// Line counts from 1.
	Line int
	Text string
}

func (i *Imported) report(line int, format string, args ...any) {
	i.Reports = append(i.Reports, Report{line, printable(fmt.Sprintf(format, args...))})
}

// printable replaces characters that are not printable, such as a terminal's control
// characters.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// done removes invalid services, and returns the result with the reports sorted.
func (i *Imported) done(lines map[string]int) Imported {
	var all []model.VirtualService
	for _, v := range i.Services {
		if err := v.Validate(); err != nil {
			i.report(lines[v.Name], "%s is not imported: %v", v.Name, strings.ReplaceAll(err.Error(), "\n", "; "))
			continue
		}
		all = append(all, v)
	}
	i.Services = all
	slices.SortFunc(i.Reports, func(a, b Report) int { return cmp.Or(a.Line-b.Line, strings.Compare(a.Text, b.Text)) })
	return *i
}

// maxLines is the maximum number of lines that are read.
const maxLines = 1 << 16

func linesOf(text []byte) []string {
	var all []string
	for line := range bytes.Lines(text) {
		if len(all) == maxLines {
			break
		}
		all = append(all, strings.TrimRight(string(line), "\r\n"))
	}
	return all
}

// named makes a service's name from its address and port: tcp-192-0-2-10-80.
func named(proto model.Proto, at netip.AddrPort) string {
	host := strings.Trim(strings.NewReplacer(":", "-", ".", "-").Replace(at.Addr().String()), "-")
	return fmt.Sprintf("%s-%s-%d", proto, strings.ReplaceAll(host, "--", "-0-"), at.Port())
}

// virtual returns a service with one address and port.
func virtual(proto model.Proto, at netip.AddrPort) model.VirtualService {
	return model.VirtualService{Name: named(proto, at), Addresses: []netip.Addr{at.Addr()},
		Ports: []model.PortRange{model.Port(at.Port())}, Proto: proto}
}

// schedule parses the name of a scheduler. It returns mh for an unsupported one.
func (i *Imported) schedule(line int, name string) model.Scheduler {
	s := model.Scheduler(name)
	if (model.VirtualService{Addresses: []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, 1})},
		Ports: []model.PortRange{model.Port(1)}, Name: "x", Proto: model.TCP, Scheduler: s}).Validate() != nil {
		i.report(line, "scheduler %s: not supported: %s is used instead", name, model.DefaultScheduler)
		return model.DefaultScheduler
	}
	return s
}

// add adds a real server to a service, if packets are forwarded to it as to the
// service's other real servers.
func (i *Imported) add(line int, v *model.VirtualService, r model.RealServer, by forwarding) {
	if first := (forwarding{v.Forward, v.Tunnel}); len(v.Reals) > 0 && first != by {
		i.report(line, "real server %s is not imported: it uses forward %s, and the others of its service use %s: "+
			"create another service for it", r, by, first)
		return
	}
	v.Forward, v.Tunnel = by.forward, by.tunnel
	if by.forward != model.ForwardNAT && r.Port == v.Ports[0].First {
		r.Port = 0 // the port to which the client connected
	}
	if slices.ContainsFunc(v.Reals, r.Is) {
		i.report(line, "real server %s is not imported: it is listed twice", r)
		return
	}
	v.Reals = append(v.Reals, r)
}

// seconds parses a duration in seconds, from 0 to 366 days.
func seconds(text string) (time.Duration, bool) {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || n < 0 || n > 366*24*3600 || n != n {
		return 0, false
	}
	return time.Duration(n * float64(time.Second)).Round(time.Millisecond), true
}
