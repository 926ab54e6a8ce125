package boltfile

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.etcd.io/bbolt"
)

// sumSize is the length of a checksum: 64 bits of SHA-256.
const sumSize = 8

// Meta is the table with the version of the content. Its values have no checksums of their own, but the
// digest covers them.
const Meta = "meta"

var metaTable, formatKey, contentsKey = []byte(Meta), []byte("format"), []byte("contents")

// FormatError means that another version of the program has written the file. Want is the format of this one.
type FormatError struct{ Format, Want int }

// Error implements error.
func (e *FormatError) Error() string {
	if e.Format > e.Want {
		return fmt.Sprintf("format %d is newer than this program's %d: run the fairlead that wrote it, or a newer one",
			e.Format, e.Want)
	}
	return fmt.Sprintf("format %d is older than this program's %d: run the fairlead that wrote it, or delete the file "+
		"and its copy, which loses what is stored in it", e.Format, e.Want)
}

// contents describe all values of a file but the description itself.
type contents struct {
	count  uint64
	digest uint64 // the sums of all values, combined with exclusive or
	// tx is the number of the last transaction. Without it, an older root page whose tree still exists would be
	// believed.
	tx uint64
}

func (c contents) encode() (text []byte) {
	for _, n := range []uint64{c.count, c.digest, c.tx} {
		text = binary.BigEndian.AppendUint64(text, n)
	}
	return text
}

func decodeContents(text []byte) (contents, bool) {
	if len(text) != 24 {
		return contents{}, false
	}
	number := func(i int) uint64 { return binary.BigEndian.Uint64(text[8*i:]) }
	return contents{number(0), number(1), number(2)}, true
}

func (c *contents) add(sum []byte) {
	c.count, c.digest = c.count+1, c.digest^binary.BigEndian.Uint64(sum)
}
func (c *contents) cut(sum []byte) {
	c.count, c.digest = c.count-1, c.digest^binary.BigEndian.Uint64(sum)
}

// sum returns the checksum of a value.
func sum(table, key, content []byte) []byte {
	text := make([]byte, 0, 16+len(table)+len(key)+len(content))
	text = append(binary.BigEndian.AppendUint64(text, uint64(len(table))), table...)
	text = append(binary.BigEndian.AppendUint64(text, uint64(len(key))), key...)
	all := sha256.Sum256(append(text, content...))
	return all[:sumSize]
}

// errSum means that a value is not what was stored.
var errSum = errors.New("the checksum is wrong")

// shown returns a name for an error. A damaged one can have any bytes and any length.
func shown(name []byte) string {
	const most = 64
	if len(name) > most {
		name = name[:most]
	}
	return strings.Trim(strconv.QuoteToASCII(string(name)), `"`)
}

// Content returns what [Put] has stored as a value of a table.
func Content(table, key, value []byte) ([]byte, error) {
	if len(value) < sumSize || string(value[:sumSize]) != string(sum(table, key, value[sumSize:])) {
		return nil, fmt.Errorf("%s %s: %w", shown(table), shown(key), errSum)
	}
	return value[sumSize:], nil
}

// Update changes a file in one transaction, as bbolt's Update does. f may change values with [Put] and [Delete] only,
// unless it calls [Seal].
func Update(db *bbolt.DB, f func(*bbolt.Tx) error) error {
	return db.Update(func(tx *bbolt.Tx) error {
		if err := f(tx); err != nil {
			return err
		}
		return amend(tx, func(*contents) error { return nil })
	})
}

// Put stores a value in a table, which it creates if it does not exist.
func Put(tx *bbolt.Tx, table, key, content []byte) error {
	b, err := tx.CreateBucketIfNotExists(table)
	if err != nil {
		return err
	}
	value := append(sum(table, key, content), content...)
	return amend(tx, func(c *contents) error {
		if old := b.Get(key); old != nil {
			c.cut(old)
		}
		c.add(value)
		return b.Put(key, value)
	})
}

// Delete deletes a value of a table. It succeeds if there is none.
func Delete(tx *bbolt.Tx, table, key []byte) error {
	b := tx.Bucket(table)
	if b == nil || b.Get(key) == nil {
		return nil
	}
	return amend(tx, func(c *contents) error {
		c.cut(b.Get(key))
		return b.Delete(key)
	})
}

// amend changes the description of the contents.
func amend(tx *bbolt.Tx, change func(*contents) error) error {
	meta := tx.Bucket(metaTable)
	if meta == nil {
		return errContents
	}
	c, ok := decodeContents(meta.Get(contentsKey))
	if !ok {
		return errContents
	}
	if err := change(&c); err != nil {
		return err
	}
	c.tx = uint64(tx.ID())
	return meta.Put(contentsKey, c.encode())
}

// Seal makes the format the version of the content, and describes the content. It must be called in each
// transaction that changes a file without [Put] and [Delete].
func Seal(tx *bbolt.Tx, format int) error {
	meta, err := tx.CreateBucketIfNotExists(metaTable)
	if err != nil {
		return err
	}
	if err := meta.Put(formatKey, []byte(strconv.Itoa(format))); err != nil {
		return err
	}
	c := contents{tx: uint64(tx.ID())}
	err = tx.ForEach(func(table []byte, b *bbolt.Bucket) error {
		return b.ForEach(func(key, value []byte) error {
			if slices.Equal(table, metaTable) && slices.Equal(key, contentsKey) {
				return nil
			}
			c.add(sumOf(table, key, value))
			return nil
		})
	})
	if err != nil {
		return err
	}
	return meta.Put(contentsKey, c.encode())
}

// sumOf returns the checksum of a stored value, which has one of its own unless the table is meta.
func sumOf(table, key, value []byte) []byte {
	if string(table) == Meta {
		return sum(table, key, value)
	}
	return append(slices.Clone(value), make([]byte, sumSize)...)[:sumSize]
}

// parseFormat returns the version of the content.
func parseFormat(text []byte) (int, error) {
	if text == nil {
		return 0, errContents
	}
	format, err := strconv.Atoi(string(text))
	if err != nil || format < 1 {
		return 0, fmt.Errorf("the format is %s, want a number", shown(text))
	}
	return format, nil
}
