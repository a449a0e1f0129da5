import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.avro.data.TimeConversions;
import org.apache.avro.file.DataFileReader;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericRecord;

/** Prints the records of Avro files as JSON: the values of each, or why a file is refused. */
public final class ReadAvro {
  public static void main(String[] paths) throws Exception {
    GenericData data = new GenericData();
    data.addLogicalTypeConversion(new TimeConversions.DateConversion());
    data.addLogicalTypeConversion(new TimeConversions.LocalTimestampMicrosConversion());
    data.addLogicalTypeConversion(new TimeConversions.LocalTimestampMillisConversion());
    data.addLogicalTypeConversion(new TimeConversions.TimestampMicrosConversion());
    Map<String, Object> found = new LinkedHashMap<>();
    for (String path : paths) {
      try {
        found.put(path, rows(path, data));
      } catch (Exception error) {
        found.put(path, error.toString());
      }
    }
    System.out.println(new ObjectMapper().writeValueAsString(found));
  }

  private static List<Object> rows(String path, GenericData data) throws Exception {
    List<Object> rows = new ArrayList<>();
    GenericDatumReader<GenericRecord> reader = new GenericDatumReader<>(null, null, data);
    try (DataFileReader<GenericRecord> file = new DataFileReader<>(new File(path), reader)) {
      for (GenericRecord each : file) {
        rows.add(plain(each));
      }
    }
    return rows;
  }

  private static Object plain(Object value) {
    if (value == null || value instanceof Number || value instanceof Boolean) {
      return value;
    }
    if (value instanceof ByteBuffer) {
      byte[] bytes = new byte[((ByteBuffer) value).remaining()];
      ((ByteBuffer) value).duplicate().get(bytes);
      return Map.of("bytes", new BigInteger(1, bytes).toString(16));
    }
    List<Object> values = new ArrayList<>();
    if (value instanceof GenericRecord) {
      GenericRecord record = (GenericRecord) value;
      record.getSchema().getFields().forEach(field -> values.add(plain(record.get(field.pos()))));
      return values;
    }
    if (value instanceof Iterable) {
      ((Iterable<?>) value).forEach(each -> values.add(plain(each)));
      return values;
    }
    if (value instanceof java.time.LocalDateTime) {
      return Map.of("time", value.toString());
    }
    return value.toString();
  }
}
