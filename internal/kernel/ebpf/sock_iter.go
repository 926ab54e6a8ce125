package ebpf

import (
	"bufio"
	"fmt"
	"io"

	"fairlead/internal/kernel/bpf"

	"github.com/cilium/ebpf/link"
)

// listBuffer is the largest part of the list that the kernel returns at once, in bytes.
const listBuffer = 1 << 15

// Incomplete lists the sockets of the host's processes that are connected to an endpoint
// to which the dialled address is no longer translated. Each is a struct
// inet_diag_req_v2, which identifies it to sock_diag. The host is the calling thread's
// network namespace. If there are hundreds, one can be missing: the kernel lists them in
// parts and finds the start of each part by counting. It skips a socket if an earlier one
// was closed meanwhile.
func (p *Datapath) Incomplete() ([]byte, error) {
	tcp, err := p.list(bpf.FairleadProgFlTcpIter)
	if err != nil {
		return nil, err
	}
	udp, err := p.list(bpf.FairleadProgFlUdpIter)
	return append(tcp, udp...), err
}

// list returns what the iterator writes.
func (p *Datapath) list(iterator string) ([]byte, error) {
	prog, err := p.program(iterator)
	if err != nil {
		return nil, err
	}
	it, err := link.AttachIter(link.IterOptions{Program: prog})
	if err != nil {
		return nil, fmt.Errorf("attach eBPF iterator %s: %w", iterator, err)
	}
	defer it.Close()
	list, err := it.Open()
	if err != nil {
		return nil, fmt.Errorf("open eBPF iterator %s: %w", iterator, err)
	}
	defer list.Close()
	return io.ReadAll(bufio.NewReaderSize(list, listBuffer))
}
