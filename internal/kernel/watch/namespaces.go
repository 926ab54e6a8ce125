package watch

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"fairlead/internal/kernel/netns"
	"fairlead/internal/kernel/nlutil"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Namespaces returns a channel that gets the id of each namespace that ends, as the
// namespace in knows it. It gets netns.NoID when messages of the kernel were lost.
// The channel is closed after ctx is done.
func Namespaces(ctx context.Context, in *netns.Namespace) (<-chan int, error) {
	var socket *nl.NetlinkSocket
	err := in.Do(func() (err error) {
		socket, err = nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_NSID)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("watch network namespaces: %w", err)
	}
	context.AfterFunc(ctx, socket.Close)
	gone := make(chan int)
	go func() {
		defer close(gone)
		for {
			ids, err := endedNamespaces(socket)
			if err != nil && !errors.Is(err, unix.ENOBUFS) {
				return // closed
			}
			if err != nil {
				ids = []int{netns.NoID}
			}
			for _, id := range ids {
				select {
				case gone <- id:
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	return gone, nil
}

// rtgen is the length in bytes of a struct rtgenmsg with the padding before its
// attributes.
const rtgen = 4

// endedNamespaces waits for messages and returns the ids of deleted namespaces.
func endedNamespaces(socket *nl.NetlinkSocket) ([]int, error) {
	messages, _, err := socket.Receive()
	if err != nil {
		return nil, err
	}
	var ids []int
	for _, m := range messages {
		if id, ok := endedID(m.Data); ok && m.Header.Type == unix.RTM_DELNSID {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// endedID returns the id of the namespace that a message is about.
func endedID(body []byte) (id int, ok bool) {
	value := nlutil.Attribute(body[min(rtgen, len(body)):], netlink.NETNSA_NSID)
	if len(value) < 4 {
		return 0, false
	}
	return int(int32(binary.NativeEndian.Uint32(value))), true
}
