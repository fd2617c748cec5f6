package domain

// ClockReset is the type of the events by which a shard whose head was dated by a wrong
// clock goes back to the right time.
const ClockReset EventType = "clock.reset"

func (*ClockResetBody) eventType() EventType                         { return ClockReset }
func (b *ClockResetBody) appendCanonical(dst []byte) ([]byte, error) { return appendJCS(dst, b) }
