package kernel

import (
	"fairlead/internal/kernel/ebpf/datapath"
	"fairlead/internal/kernel/ipvs"
	"fairlead/internal/plan"
)

func ebpfOf(h *Host) *datapath.Handle { return h.ebpf }

func ipvsOf(h *Host) *ipvs.Handle { return h.ipvs }

// programsKind returns the kind of objects that are attached eBPF programs.
func programsKind[T plan.Object](p datapath.Programs[T], concerned func(*matcher, T) bool) kind[T] {
	return kind[T]{set: on(ebpfOf, p.Set), del: on(ebpfOf, p.Del), read: reading(ebpfOf, p.Read),
		concerned: concerned, polled: true}
}

// detached is the concerned function of programs about which the kernel sends no
// events.
func detached[T plan.Object](m *matcher, _ T) bool { return m.bpf }

var bindHooksKind = programsKind(datapath.BindHooks,
	detached[plan.BindHooks]).withLeftovers(reading(ebpfOf, (*datapath.Handle).LeftoverBindHooks))

var fastPathKind = programsKind(datapath.FastPath,
	func(m *matcher, _ plan.FastPath) bool { return m.bpf || m.newUplink() })

var localClientsKind = programsKind(datapath.LocalClients, detached[plan.LocalClients])

var uplinksKind = programsKind(datapath.Uplinks,
	func(m *matcher, _ plan.Uplinks) bool { return m.bpf || m.multipath || m.newUplink() })

var localRealEgressKind = programsKind(datapath.LocalRealEgress, detached[plan.LocalRealEgress])

var ingressKind = programsKind(datapath.Ingress, detached[plan.Ingress])

// Entries of the eBPF table differ if the table was damaged.
var (
	ebpfMappingKind = kind[plan.EBPFMapping]{
		concerned: func(m *matcher, _ plan.EBPFMapping) bool { return m.mappings },
		polled:    true,
	}
	grantKind = kind[plan.Grant]{
		concerned: func(m *matcher, _ plan.Grant) bool { return m.mappings },
		polled:    true,
	}
)

var ebpfServiceKind = kind[plan.EBPFService]{
	// The next hop to a real server may have changed.
	concerned: func(m *matcher, _ plan.EBPFService) bool {
		return m.mappings || len(m.routes)+len(m.addresses)+len(m.links) > 0
	},
	polled: true,
}

var ipvsServiceKind = kind[plan.IPVSService]{
	set:       on(ipvsOf, (*ipvs.Handle).SetIPVS),
	del:       on(ipvsOf, (*ipvs.Handle).DelIPVS),
	read:      reading(ipvsOf, (*ipvs.Handle).ReadIPVS),
	leftovers: reading(ipvsOf, (*ipvs.Handle).LeftoverIPVS),
	concerned: func(m *matcher, _ plan.IPVSService) bool { return m.ipvs },
}
