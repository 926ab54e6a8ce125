// Package unwrap terminates a tunnel, for tests on kernels without a tunnel device (ipip, ip6tnl,
// fou). On a link's ingress, it removes the outer of two IP headers of the same family, and the GUE
// headers between them. It needs Linux 6.6 (TCX).
package unwrap

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// GUE is the UDP port for GUE packets.
const GUE = 6080

// On decapsulates the packets that arrive on a link, until end is closed. in runs a function in the
// link's network namespace.
func On(in func(func() error) error, name string) (end io.Closer, err error) {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: program()})
	if err != nil {
		return nil, fmt.Errorf("load a program: %w", err)
	}
	err = in(func() error {
		at, err := net.InterfaceByName(name)
		if err == nil {
			end, err = link.AttachTCX(link.TCXOptions{Interface: at.Index, Program: prog,
				Attach: ebpf.AttachTCXIngress})
		}
		return err
	})
	return end, errors.Join(err, prog.Close()) // the link keeps the program loaded
}

// program removes the outer of two IPv4 headers or of two IPv6 headers, and the GUE headers (8
// bytes of UDP, and 4 of GUE without options).
func program() asm.Instructions {
	const pass, mac, keepSegments = -1, 1, 1
	cut := func(label string, bytes int32) asm.Instructions {
		return asm.Instructions{
			asm.Mov.Imm(asm.R2, -bytes).WithSymbol(label), asm.Mov.Reg(asm.R1, asm.R6),
			asm.Mov.Imm(asm.R3, mac), asm.Mov.Imm(asm.R4, keepSegments), asm.FnSkbAdjustRoom.Call(),
			asm.Ja.Label("pass"),
		}
	}
	all := asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadAbs(12, asm.Half), asm.Mov.Reg(asm.R7, asm.R0),
		asm.JEq.Imm(asm.R7, unix.ETH_P_IP, "v4"), asm.JEq.Imm(asm.R7, unix.ETH_P_IPV6, "v6"), asm.Ja.Label("pass"),
		asm.LoadAbs(14+9, asm.Byte).WithSymbol("v4"), asm.JEq.Imm(asm.R0, unix.IPPROTO_IPIP, "cut4"),
		asm.JNE.Imm(asm.R0, unix.IPPROTO_UDP, "pass"),
		asm.LoadAbs(14+20+2, asm.Half), asm.JNE.Imm(asm.R0, GUE, "pass"),
		asm.LoadAbs(14+20+8, asm.Word), asm.JEq.Imm(asm.R0, unix.IPPROTO_IPIP<<16, "gue4"), asm.Ja.Label("pass"),
		asm.LoadAbs(14+6, asm.Byte).WithSymbol("v6"), asm.JEq.Imm(asm.R0, unix.IPPROTO_IPV6, "cut6"),
		asm.JNE.Imm(asm.R0, unix.IPPROTO_UDP, "pass"),
		asm.LoadAbs(14+40+2, asm.Half), asm.JNE.Imm(asm.R0, GUE, "pass"),
		asm.LoadAbs(14+40+8, asm.Word), asm.JEq.Imm(asm.R0, unix.IPPROTO_IPV6<<16, "gue6"), asm.Ja.Label("pass"),
	}
	all = slices.Concat(all, cut("cut4", 20), cut("cut6", 40), cut("gue4", 20+12), cut("gue6", 40+12))
	return append(all, asm.Mov.Imm(asm.R0, pass).WithSymbol("pass"), asm.Return())
}
