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
// inet_diag_req_v2, which identifies it to sock_diag. If there are hundreds, one can be
// missing: the kernel lists them in parts and finds the start of each part by counting.
// It skips a socket if an earlier one was closed meanwhile.
func (p *Datapath) Incomplete() ([]byte, error) {
	prog, err := p.program(bpf.FairleadProgFlSockIter)
	if err != nil {
		return nil, err
	}
	it, err := link.AttachIter(link.IterOptions{Program: prog, Map: p.maps[bpf.FairleadMapFlDialled]})
	if err != nil {
		return nil, fmt.Errorf("attach eBPF iterator: %w", err)
	}
	defer it.Close()
	list, err := it.Open()
	if err != nil {
		return nil, fmt.Errorf("open eBPF iterator: %w", err)
	}
	defer list.Close()
	return io.ReadAll(bufio.NewReaderSize(list, listBuffer))
}
