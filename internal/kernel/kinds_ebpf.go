package kernel

import (
	"fairlead/internal/kernel/ebpf/datapath"
	"fairlead/internal/kernel/ipvs"
	"fairlead/internal/kernel/watch"
	"fairlead/internal/plan"
)

func ebpfOf(h *Host) *datapath.Handle { return h.ebpf }

func overlaysOf(h *Host) *datapath.Overlays { return h.ebpf.Overlays() }

func ipvsOf(h *Host) *ipvs.Handle { return h.ipvs }

// programsKind returns the kind of objects that are attached eBPF programs.
func programsKind[T plan.Object](p datapath.Programs[T], concerned func(*watch.Matcher, T) bool) kind[T] {
	return kind[T]{set: on(ebpfOf, p.Set), del: on(ebpfOf, p.Del), read: reading(ebpfOf, p.Read),
		concerned: concerned, polled: true}
}

// detached is the concerned function of programs about which the kernel sends no
// events.
func detached[T plan.Object](m *watch.Matcher, _ T) bool { return m.Detached() }

var bindHooksKind = programsKind(datapath.BindHooks,
	detached[plan.BindHooks]).withLeftovers(reading(ebpfOf, (*datapath.Handle).LeftoverBindHooks))

var fastPathKind = programsKind(datapath.FastPath,
	func(m *watch.Matcher, _ plan.FastPath) bool { return m.Detached() || m.UplinksChanged() })

var localClientsKind = programsKind(datapath.LocalClients, detached[plan.LocalClients])

var uplinksKind = programsKind(datapath.Uplinks,
	func(m *watch.Matcher, _ plan.Uplinks) bool {
		return m.Detached() || m.MultipathChanged() || m.UplinksChanged()
	})

var localRealEgressKind = programsKind(datapath.LocalRealEgress, detached[plan.LocalRealEgress])

var ingressKind = programsKind(datapath.Ingress, detached[plan.Ingress])

var outboundKind = programsKind(datapath.Outbound, detached[plan.Outbound])

var overlayProgramsKind = kind[plan.OverlayPrograms]{
	set:       on(overlaysOf, (*datapath.Overlays).Set),
	del:       on(overlaysOf, (*datapath.Overlays).Del),
	read:      reading(overlaysOf, (*datapath.Overlays).Read),
	concerned: detached[plan.OverlayPrograms],
	polled:    true,
}

var overlayStationKind = kind[plan.OverlayStation]{
	set:       on(overlaysOf, (*datapath.Overlays).SetStation),
	del:       on(overlaysOf, (*datapath.Overlays).DelStation),
	read:      reading(overlaysOf, (*datapath.Overlays).ReadStation),
	concerned: detached[plan.OverlayStation],
	polled:    true,
}

// Entries of the eBPF table differ if the table was damaged.
var (
	ebpfMappingKind = kind[plan.EBPFMapping]{
		concerned: func(m *watch.Matcher, _ plan.EBPFMapping) bool { return m.MapsDiffer() },
		polled:    true,
	}
	grantKind = kind[plan.Grant]{
		concerned: func(m *watch.Matcher, _ plan.Grant) bool { return m.MapsDiffer() },
		polled:    true,
	}
)

var ebpfServiceKind = kind[plan.EBPFService]{
	// The next hop to a real server may have changed.
	concerned: func(m *watch.Matcher, _ plan.EBPFService) bool {
		return m.MapsDiffer() || m.NextHopsChanged()
	},
	polled: true,
}

var ipvsServiceKind = kind[plan.IPVSService]{
	set:       on(ipvsOf, (*ipvs.Handle).SetIPVS),
	del:       on(ipvsOf, (*ipvs.Handle).DelIPVS),
	read:      reading(ipvsOf, (*ipvs.Handle).ReadIPVS),
	leftovers: reading(ipvsOf, (*ipvs.Handle).LeftoverIPVS),
	concerned: func(m *watch.Matcher, _ plan.IPVSService) bool { return m.IPVSDiffers() },
}
