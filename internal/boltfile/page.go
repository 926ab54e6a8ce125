package boltfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/bits"
)

// The format of bbolt's files, in the byte order of the machine.
const (
	magic      = 0xED0CDAED
	version    = 2
	noFreelist = ^uint64(0)

	headerSize  = 16 // of a page: id, flags, count, overflow
	elementSize = 16 // of an element in a page
	bucketSize  = 16 // of a bucket: root page, sequence
	metaSize    = 64 // of a meta page, without its header
	metaSum     = 56 // where the checksum of a meta page begins
	metaPages   = 2

	branchPage   = 0x01
	leafPage     = 0x02
	metaPage     = 0x04
	freelistPage = 0x10
	bucketFlag   = 0x01 // of an element in a leaf page

	minPageSize, maxPageSize = 1 << 10, 16 << 20
)

var order = binary.NativeEndian

// meta is the content of a meta page.
type meta struct {
	pageSize             int64
	root, freelist, high uint64 // high is greater than the id of each page
	tx                   uint64
}

// readMeta reads the meta page with that id.
func readMeta(file io.ReaderAt, id uint64, offset int64) (meta, error) {
	text := make([]byte, headerSize+metaSize)
	if _, err := file.ReadAt(text, offset); err != nil && !errors.Is(err, io.EOF) {
		return meta{}, err
	}
	body := text[headerSize:]
	sum := fnv.New64a()
	sum.Write(body[:metaSum]) // never fails
	size := order.Uint32(body[8:])
	switch {
	case order.Uint32(body) != magic, order.Uint32(body[4:]) != version, order.Uint64(body[metaSum:]) != sum.Sum64(),
		order.Uint64(text) != id, order.Uint16(text[8:]) != metaPage,
		size < minPageSize, size > maxPageSize, bits.OnesCount32(size) != 1:
		return meta{}, fmt.Errorf("meta page %d is not valid", id)
	}
	return meta{pageSize: int64(size), root: order.Uint64(body[16:]), freelist: order.Uint64(body[32:]),
		high: order.Uint64(body[40:]), tx: order.Uint64(body[48:])}, nil
}

// page is a page with its overflow.
type page struct {
	id           uint64
	flags, count uint16
	overflow     uint32
	text         []byte
}

func parsePage(text []byte) page {
	return page{order.Uint64(text), order.Uint16(text[8:]), order.Uint16(text[10:]), order.Uint32(text[12:]), text}
}

// readPage reads a page that no other part of the tree has.
func (p *parser) readPage(id uint64) (page, error) {
	if id < metaPages || id >= p.meta.high {
		return page{}, fmt.Errorf("page %d does not exist", id)
	}
	text := make([]byte, p.meta.pageSize)
	if err := p.read(text, id); err != nil {
		return page{}, err
	}
	g := parsePage(text)
	if g.id != id {
		return page{}, fmt.Errorf("page %d has the id %d", id, g.id)
	}
	pages := 1 + uint64(g.overflow)
	if pages > p.meta.high-id || int64(id+pages) > (p.size+p.meta.pageSize-1)/p.meta.pageSize {
		return page{}, fmt.Errorf("page %d is longer than the file", id)
	}
	for n := id; n < id+pages; n++ {
		if p.seen[n] {
			return page{}, fmt.Errorf("page %d is in use twice", n)
		}
		p.seen[n] = true
	}
	if pages > 1 {
		g.text = make([]byte, int64(pages)*p.meta.pageSize)
		if err := p.read(g.text, id); err != nil {
			return page{}, err
		}
	}
	return g, nil
}

func (p *parser) read(text []byte, id uint64) error {
	if id > uint64(p.size/p.meta.pageSize) {
		return fmt.Errorf("page %d: the file is too short", id)
	}
	if _, err := p.file.ReadAt(text, int64(id)*p.meta.pageSize); err != nil {
		return fmt.Errorf("page %d: %w", id, err)
	}
	return nil
}

// element is an element of a page. A branch has child, a leaf has flags and value.
type element struct {
	key, value []byte
	child      uint64
	flags      uint32
}

// elements returns the elements of a branch or a leaf in their order.
func (g page) elements() ([]element, error) {
	all := make([]element, 0, g.count)
	end := headerSize + int(g.count)*elementSize
	if end > len(g.text) {
		return nil, fmt.Errorf("page %d has too many elements", g.id)
	}
	for at := headerSize; at < end; at += elementSize {
		e, err := g.element(at, end)
		if err != nil {
			return nil, err
		}
		if len(all) > 0 && bytes.Compare(all[len(all)-1].key, e.key) >= 0 {
			return nil, fmt.Errorf("page %d: the keys are not in order", g.id)
		}
		all = append(all, e)
	}
	return all, nil
}

// element returns the element whose description begins at an offset. The contents begin after the offset end.
func (g page) element(at, end int) (element, error) {
	head := g.text[at:]
	var e element
	var pos, keySize, valueSize uint64
	if g.flags == branchPage {
		pos, keySize, e.child = uint64(order.Uint32(head)), uint64(order.Uint32(head[4:])), order.Uint64(head[8:])
	} else {
		e.flags, pos = order.Uint32(head), uint64(order.Uint32(head[4:]))
		keySize, valueSize = uint64(order.Uint32(head[8:])), uint64(order.Uint32(head[12:]))
	}
	start := uint64(at) + pos
	if start < uint64(end) || start+keySize+valueSize > uint64(len(g.text)) || keySize == 0 {
		return e, fmt.Errorf("page %d: an element is outside of the page", g.id)
	}
	e.key, e.value = g.text[start:start+keySize], g.text[start+keySize:start+keySize+valueSize]
	return e, nil
}
