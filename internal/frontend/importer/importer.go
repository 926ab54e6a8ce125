// Package importer reads how other balancers of IPVS were told of virtual
// services: what `ipvsadm -S -n` writes, and the virtual_server blocks of
// keepalived.conf(5). It turns text into services and says, with its line, what
// of it these do not hold. It applies nothing.
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

	"fairlead/internal/model"
)

// Imported is what a text has come to.
type Imported struct {
	Services []model.VirtualService
	// Left are what the services do not hold, in the order of the lines.
	Left []Left
}

// Left is something that was not carried over, or otherwise than it was.
type Left struct {
	// Line counts from 1.
	Line int
	Text string
}

func (i *Imported) left(line int, format string, args ...any) {
	i.Left = append(i.Left, Left{line, printable(fmt.Sprintf(format, args...))})
}

// printable returns the text without what would command a terminal.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// done completes the services, and leaves out those that cannot be.
func (i *Imported) done(lines map[string]int) Imported {
	var all []model.VirtualService
	for _, v := range i.Services {
		if err := v.Validate(); err != nil {
			i.left(lines[v.Name], "%s is left out: %v", v.Name, strings.ReplaceAll(err.Error(), "\n", "; "))
			continue
		}
		all = append(all, v)
	}
	i.Services = all
	slices.SortFunc(i.Left, func(a, b Left) int { return cmp.Or(a.Line-b.Line, strings.Compare(a.Text, b.Text)) })
	return *i
}

// maxLines bounds a text.
const maxLines = 1 << 16

// linesOf returns the lines of a text.
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

// named names a service by where it answers: tcp-192-0-2-10-80.
func named(proto model.Proto, at netip.AddrPort) string {
	host := strings.Trim(strings.NewReplacer(":", "-", ".", "-").Replace(at.Addr().String()), "-")
	return fmt.Sprintf("%s-%s-%d", proto, strings.ReplaceAll(host, "--", "-0-"), at.Port())
}

// virtual is a service that answers at one address and port.
func virtual(proto model.Proto, at netip.AddrPort) model.VirtualService {
	return model.VirtualService{Name: named(proto, at), Addresses: []netip.Addr{at.Addr()}, Ports: []model.PortRange{model.Port(at.Port())}, Proto: proto}
}

// schedule reads the name of a scheduler.
func (i *Imported) schedule(line int, name string) model.Scheduler {
	s := model.Scheduler(name)
	if (model.VirtualService{Addresses: []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, 1})}, Ports: []model.PortRange{model.Port(1)}, Name: "x", Proto: model.TCP, Scheduler: s}).Validate() != nil {
		i.left(line, "scheduler %s: there is none like it: mh is used instead", name)
		return model.MaglevHashing
	}
	return s
}

// add adds a real server to a service, if its way of forwarding is that of the
// others.
func (i *Imported) add(line int, v *model.VirtualService, r model.RealServer, by sending) {
	if first := (sending{v.Forward, v.Tunnel}); len(v.Reals) > 0 && first != by {
		i.left(line, "real server %s is left out: it is forwarded to by %s, and the others of its service by %s: make another service for it", r, by, first)
		return
	}
	v.Forward, v.Tunnel = by.forward, by.tunnel
	if by.forward != model.ForwardNAT && r.Port == v.Ports[0].First {
		r.Port = 0 // it is the one that was dialled
	}
	if slices.ContainsFunc(v.Reals, r.Is) {
		i.left(line, "real server %s is left out: it is there twice", r)
		return
	}
	v.Reals = append(v.Reals, r)
}

// seconds reads a time in seconds.
func seconds(text string) (time.Duration, bool) {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || n < 0 || n > 366*24*3600 || n != n {
		return 0, false
	}
	return time.Duration(n * float64(time.Second)).Round(time.Millisecond), true
}
